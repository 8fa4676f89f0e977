"""A copy of one kind of object, kept true by list and watch; separate from what it means."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from marey.model.errors import MareyError, Unavailable, shown
from marey.sources.kubernetes.client import ApiClient, KubernetesRefused, VersionGone
from marey.sources.kubernetes.kubernetes_json import Meta, MetaOnly, ObjectPage, Status, WatchLine


class NamedObject(Protocol):
    """Any object of the API server."""

    @property
    def metadata(self) -> Meta:
        """Its name, its owners, and the version that a watch goes on from."""


T = TypeVar("T", bound=NamedObject)
Key = tuple[str, str]

PAGE = 500
WATCH_S = 240
SILENT_S = WATCH_S + 30
OBJECTS_LIMIT = 500_000
GONE_LIMIT = 20_000
# So often a kind that was listed before may be refused before its copies are dropped.
PATIENT_FAILURES = 4
# A watch that lived this long was a good one: what follows it is not the same failure again.
GOOD_WATCH_S = 10.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after failures: doubling, with jitter so that many do not come at once."""

    first_s: float = 1.0
    most_s: float = 60.0

    def wait_s(self, failures: int) -> float:
        """Return half to all of the doubled time."""
        longest = min(self.most_s, self.first_s * 2.0 ** min(failures - 1, 16))
        return longest * (0.5 + random.random() / 2)


@dataclass(slots=True)
class WatchState:
    """How a reflector is doing."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    failures: int = 0
    error: str = ""
    error_code: str = ""
    # What is done without for now: refused (403, 404), and the kind is not essential.
    given_up: str = ""


class Reflector(Generic[T]):
    """Lists, then watches from there; lists again when the server has forgotten the place."""

    def __init__(
        self,
        client: ApiClient,
        path: str,
        kind: type[T],
        keep: Callable[[T], bool] = lambda _: True,
        *,
        optional: bool = False,
        backoff: Backoff | None = None,
    ) -> None:
        self.path = path
        self.state = WatchState()
        self._client = client
        self._keep = keep
        self._optional = optional
        self._backoff = backoff or Backoff()
        listed: Any = ObjectPage[kind]  # type: ignore[valid-type]  # known at run time only
        self._page = msgspec.json.Decoder(listed, strict=False)
        self._one = msgspec.json.Decoder(kind, strict=False)
        self._line = msgspec.json.Decoder(WatchLine)
        self._lock = threading.Lock()
        self._objects: dict[Key, T] = {}
        self._gone: list[T] = []
        self._version = ""
        self._synced = threading.Event()
        # Set once there is something to tell: everything was listed, or could not be.
        self._heard = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"watch {path[:40]}")

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Return whether it has listed everything once, waiting a little for it unless it fails."""
        self._heard.wait(seconds)
        return self._synced.is_set()

    def take(self) -> tuple[list[T], list[T]]:
        """Return every object, and those that went since this was last asked, as they were last
        seen.
        """
        with self._lock:
            gone, self._gone = self._gone, []
            return list(self._objects.values()), gone

    def stop(self) -> None:
        """End; the client must have been stopped so that no read hangs."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                if not self._version:
                    self._list()
                if self._watch() or time.monotonic() - began > GOOD_WATCH_S:
                    self.state.failures = 0
                    continue
                self._record_failure(f"{self.path}: the watch ended without a word")
            except VersionGone as error:
                # At once the first time; a server that forgets every list is asked ever less.
                self._version = ""
                self._record_failure(str(error), error.code)
                if self.state.failures == 1:
                    continue
            except MareyError as error:
                if not self._do_without(error):
                    self._record_failure(str(error), error.code)
            except msgspec.MsgspecError as error:
                self._version = ""
                self._record_failure(f"{self.path}: answers in no known form: {shown(str(error))}")
            self._stop.wait(self._backoff.wait_s(self.state.failures))

    def _do_without(self, error: MareyError) -> bool:
        """Return whether the source goes on without this kind until it is let in again.

        A restarted API server refuses everybody for moments while its roles load: a kind that
        was once listed is asked for again as after any failure, and only when it stays refused
        are its copies, which nobody keeps true any more, dropped. Nothing is given up for good.
        """
        refused = isinstance(error, KubernetesRefused) and error.http_status in (403, 404)
        if not self._optional or not refused:
            return False
        self.state.failures += 1
        if self.state.lists and self.state.failures < PATIENT_FAILURES:
            return True
        self.state.given_up, self.state.error, self.state.error_code = str(error), "", ""
        self._version = ""
        with self._lock:
            self._objects = {}
        self._synced.set()
        self._heard.set()
        return True

    def _record_failure(self, text: str, code: str = "") -> None:
        """Record a failure; one dropped watch is made up for at once and not shown, two are."""
        self.state.failures += 1
        if self.state.failures > 1 or not self._synced.is_set():
            self.state.error, self.state.error_code = text, code
        self._heard.set()

    # Listing

    def _list(self) -> None:
        found: dict[Key, T] = {}
        asked = {"limit": str(PAGE)}
        while True:
            page = self._page.decode(self._client.get(self.path, asked))
            for one in page.items or []:
                if self._keep(one):
                    found[_get_key(one)] = one
            if len(found) > OBJECTS_LIMIT:
                raise Unavailable(f"{self.path}: more than {OBJECTS_LIMIT} objects")
            if not page.metadata.continue_:
                break
            asked = {"limit": str(PAGE), "continue": page.metadata.continue_}
        with self._lock:
            self._remove_objects(o for key, o in self._objects.items() if key not in found)
            self._objects = found
        self._version = page.metadata.resource_version
        self.state.lists += 1
        self.state.error = self.state.error_code = self.state.given_up = ""
        self._synced.set()
        self._heard.set()

    # Watching

    def _watch(self) -> bool:
        """Follow until the server ends it; whether anything was said."""
        asked = {
            "watch": "1",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }
        before = self.state.events
        with self._client.watch(self.path, asked, SILENT_S) as lines:
            self.state.watches += 1
            self.state.error = self.state.error_code = ""
            for line in lines:
                if line.strip():
                    self._take_line(line)
        return self.state.events > before

    def _take_line(self, line: bytes) -> None:
        event = self._line.decode(line)
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=Status)
            text = f"{self.path}: the watch says {status.code} {shown(status.message or '')}"
            raise VersionGone(text) if status.code == 410 else KubernetesRefused(status.code, text)
        if event.type == "BOOKMARK":
            self._version = msgspec.json.decode(
                event.object, type=MetaOnly
            ).metadata.resource_version
        elif event.type in ("ADDED", "MODIFIED", "DELETED"):
            one = self._one.decode(event.object)
            self._put(one, gone=event.type == "DELETED")
            self._version = one.metadata.resource_version or self._version
        else:
            raise Unavailable(f"{self.path}: an unknown event '{shown(event.type)}'")
        self.state.events += 1

    def _put(self, one: T, *, gone: bool) -> None:
        key = _get_key(one)
        with self._lock:
            before = self._objects.get(key)
            if gone:
                self._objects.pop(key, None)
                if before is not None or self._keep(one):
                    self._remove_objects([one])
            elif self._keep(one):
                if before is not None and _get_uid(before) != _get_uid(one):
                    # Made anew under the same name while nobody looked.
                    self._remove_objects([before])
                self._objects[key] = one
            else:
                self._objects.pop(key, None)

    def _remove_objects(self, ones: Any) -> None:
        self._gone.extend(ones)
        del self._gone[:-GONE_LIMIT]


def _get_key(one: Any) -> Key:
    return one.metadata.namespace, one.metadata.name


def _get_uid(one: Any) -> str:
    return str(one.metadata.uid)
