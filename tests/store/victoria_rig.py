"""A real VictoriaMetrics on loopback that tests start, kill and start again."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class VictoriaRig:
    """One server with its folder; ended by its id."""

    def __init__(self, program: str, folder: Path, *more: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.folder = folder
        self._command = [
            program,
            f"-storageDataPath={folder}",
            f"-httpListenAddr=127.0.0.1:{self.port}",
            "-retentionPeriod=100y",
            "-memory.allowedBytes=256MB",
            *more,
        ]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> VictoriaRig:
        """Start it, and return once it answers."""
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=2).close()
                return self
            except OSError:
                assert self.process.poll() is None, "victoria-metrics ended"
                time.sleep(0.05)
        raise AssertionError("victoria-metrics does not answer")

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(20)
        self.process = None

    def stop(self) -> None:
        """End it as an administrator does."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(20)
            self.process = None

    def flush(self) -> None:
        """Make what was written visible."""
        urllib.request.urlopen(f"{self.url}/internal/force_flush", timeout=20).close()

    def exported(self, selector: str) -> list[dict[str, Any]]:
        """Every series that matches, as it is stored."""
        query = urllib.parse.urlencode({"match[]": selector})
        with urllib.request.urlopen(f"{self.url}/api/v1/export?{query}", timeout=20) as answer:
            return [json.loads(line) for line in answer.read().splitlines()]
