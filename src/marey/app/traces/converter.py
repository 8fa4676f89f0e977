"""Conversions of runs, one after the other, each in a child process."""

from __future__ import annotations

import logging
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import msgspec

from marey.app.traces.children.limited_child import describe_end, run_child_task, start_child
from marey.app.traces.conversion_process import ConversionLine, ConversionResult, ConversionTask
from marey.model.errors import TooLarge

log = logging.getLogger(__name__)
WAITING_LIMIT = 50


@dataclass
class Conversion:
    """One conversion under way."""

    run: str
    progress: float = 0.0
    doing: str = "waiting"
    error: str = ""
    result: ConversionResult | None = None
    cancelled: bool = False
    over: bool = False
    _process: subprocess.Popen[bytes] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def cancel(self) -> None:
        """Stop the process, or never start it."""
        with self._lock:
            self.cancelled = True
            if self._process is not None:
                self._process.terminate()

    def work(self, task: ConversionTask) -> None:
        """Run the process and listen to what it says until it ends."""
        with start_child("marey.app.traces.conversion_process") as process:
            with self._lock:
                self._process = process
                if self.cancelled:
                    process.terminate()
            run_child_task(process, msgspec.json.encode(task), self._listen)
        if self.result is None and not self.error and not self.cancelled:
            self.error = describe_end(process.returncode)

    def _listen(self, line: bytes) -> None:
        try:
            said = msgspec.json.decode(line, type=ConversionLine)
        except msgspec.MsgspecError:
            return
        self.progress, self.doing = max(self.progress, said.progress), said.doing or self.doing
        self.error, self.result = said.error or self.error, said.result or self.result


class Converter:
    """Takes runs to convert; the newest state of each is remembered until it is over."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="convert")
        self._running: dict[str, Conversion] = {}
        self._lock = threading.Lock()

    def start(
        self, run: str, task: ConversionTask, then: Callable[[Conversion], None]
    ) -> Conversion:
        """Put a run in line; ``then`` is called when it is over, however it ended."""
        with self._lock:
            if len(self._running) >= WAITING_LIMIT:
                raise TooLarge(f"Already {WAITING_LIMIT} runs wait; let some finish first.")
            conversion = self._running[run] = Conversion(run)
        self._threads.submit(self._work, conversion, task, then)
        return conversion

    def _work(
        self, conversion: Conversion, task: ConversionTask, then: Callable[[Conversion], None]
    ) -> None:
        try:
            conversion.work(task)
        except Exception as error:
            log.exception("a conversion failed")
            conversion.error = f"{type(error).__name__}: {str(error)[:300]}"
        conversion.over = True
        try:
            then(conversion)
        finally:
            with self._lock:
                self._running.pop(conversion.run, None)

    def find(self, run: str) -> Conversion | None:
        """Return the conversion of a run that is under way, if one is."""
        return self._running.get(run)

    def cancel(self, run: str) -> None:
        """Stop the conversion of a run."""
        if (conversion := self.find(run)) is not None:
            conversion.cancel()

    def close(self) -> None:
        """Stop everything."""
        for conversion in list(self._running.values()):
            conversion.cancel()
        self._threads.shutdown(wait=True, cancel_futures=True)
