"""A server on loopback that speaks Kubernetes' list and watch, and can misbehave."""

from __future__ import annotations

import copy
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Document = dict[str, Any]
KINDS = {"nodes": "/api/v1/nodes", "pods": "/api/v1/pods", "jobs": "/apis/batch/v1/jobs"}


class ApiServer:
    """Objects by kind with one counter of versions; every change is an event to watchers."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.version = 1000
        self.objects: dict[str, dict[tuple[str, str], Document]] = {kind: {} for kind in KINDS}
        self.events: list[tuple[int, str, str, Document]] = []
        # Versions up to this one are forgotten: 410.
        self.compacted = 0
        self.page_limit = 500
        self.delay_s = 0.0
        self.token = ""
        self.forbidden: set[str] = set()
        self.garbage: list[bytes] = []
        self.gone_in_list = 0
        self.clock_ahead_s = 0.0
        self.answer_status = 0
        # Counted up to end every open watch.
        self.dropped = 0
        self.watching: Counter[str] = Counter()
        self.cut = False
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.url = ""

    def put(self, kind: str, one: Document) -> None:
        with self.changed:
            key = (one["metadata"].get("namespace", ""), one["metadata"]["name"])
            event = "MODIFIED" if key in self.objects[kind] else "ADDED"
            self._store(kind, key, one, event)

    def delete(self, kind: str, name: str, namespace: str = "default") -> None:
        with self.changed:
            key = ("" if kind == "nodes" else namespace, name)
            one = self.objects[kind].pop(key)
            self._note(kind, one, "DELETED")

    def change(self, kind: str, name: str, namespace: str = "default", **parts: Any) -> None:
        """Merge fields into an object's metadata, spec or status."""
        key = ("" if kind == "nodes" else namespace, name)
        one = copy.deepcopy(self.objects[kind][key])
        for part, fields in parts.items():
            one.setdefault(part, {}).update(fields)
        self.put(kind, one)

    def _store(self, kind: str, key: tuple[str, str], one: Document, event: str) -> None:
        self.objects[kind][key] = self._note(kind, one, event)

    def _note(self, kind: str, one: Document, event: str) -> Document:
        self.version += 1
        one = copy.deepcopy(one)
        one["metadata"]["resourceVersion"] = str(self.version)
        self.events.append((self.version, kind, event, one))
        self.changed.notify_all()
        return one

    def bookmark(self, kind: str) -> None:
        with self.changed:
            self.version += 1
            one = {"metadata": {"resourceVersion": str(self.version)}}
            self.events.append((self.version, kind, "BOOKMARK", one))
            self.changed.notify_all()

    def drop_watches(self, *, cut: bool = False) -> None:
        """End every watch: as the server does when its time is up, or by cutting the line."""
        with self.changed:
            self.cut = cut
            self.dropped += 1
            self.changed.notify_all()

    def compact(self) -> None:
        """Forget the past, as etcd does every five minutes."""
        with self.changed:
            self.compacted = self.version

    def asked(self, kind: str, *, watch: bool) -> list[dict[str, str]]:
        found = [q for path, q in self.requests if path.endswith(f"/{kind}")]
        return [q for q in found if ("watch" in q) is watch]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: ApiServer

    def log_message(self, *_: Any) -> None:
        pass

    def date_time_string(self, timestamp: float | None = None) -> str:
        return formatdate(time.time() + self.api.clock_ahead_s, usegmt=True)

    def do_GET(self) -> None:
        api = self.api
        parts = urlsplit(self.path)
        asked = {key: values[0] for key, values in parse_qs(parts.query).items()}
        api.requests.append((parts.path, asked))
        if api.delay_s:
            time.sleep(api.delay_s)
        words = parts.path.strip("/").split("/")
        kind, namespace = words[-1], words[-2] if "namespaces" in words else ""
        if api.token and self.headers.get("Authorization") != f"Bearer {api.token}":
            return self._status(401, "Unauthorized")
        if api.answer_status:
            return self._status(api.answer_status, "the server is overloaded")
        if kind in api.forbidden:
            text = f'{kind} is forbidden: User "marey" cannot list resource "{kind}"'
            return self._status(403, text)
        if kind not in api.objects:
            return self._status(404, "the server could not find the requested resource")
        if "watch" in asked:
            return self._watch(kind, namespace, asked)
        return self._list(kind, namespace, asked)

    def _status(self, code: int, message: str) -> None:
        body = json.dumps({"kind": "Status", "code": code, "message": message}).encode()
        self._send(code, body)

    def _send(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _list(self, kind: str, namespace: str, asked: dict[str, str]) -> None:
        api = self.api
        if api.garbage:
            return self._send(200, api.garbage.pop(0))
        with api.changed:
            ones = [o for (n, _), o in sorted(api.objects[kind].items()) if namespace in ("", n)]
            version = str(api.version)
        begin = int(asked.get("continue", "0"))
        if begin and api.gone_in_list:
            api.gone_in_list -= 1
            return self._status(410, "The provided continue parameter is too old")
        end = begin + min(int(asked.get("limit", 10**9)), api.page_limit)
        meta = {"resourceVersion": version}
        if end < len(ones):
            meta["continue"] = str(end)
        document = {"kind": f"{kind}List", "metadata": meta, "items": ones[begin:end]}
        return self._send(200, json.dumps(document).encode())

    def _watch(self, kind: str, namespace: str, asked: dict[str, str]) -> None:
        api = self.api
        since = int(asked["resourceVersion"])
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if since < api.compacted:
            self._line({"type": "ERROR", "object": {"code": 410, "message": "too old"}})
            self.wfile.write(b"0\r\n\r\n")
            return
        with api.changed:
            dropped = api.dropped
            api.watching[kind] += 1
        try:
            self._follow(kind, namespace, since, dropped)
        finally:
            with api.changed:
                api.watching[kind] -= 1
        if api.cut:
            self.close_connection = True
            self.connection.close()
            return
        self.wfile.write(b"0\r\n\r\n")

    def _follow(self, kind: str, namespace: str, since: int, dropped: int) -> None:
        """Tell what changes until the watch is dropped."""
        api = self.api
        while True:
            with api.changed:
                api.changed.wait_for(
                    lambda since=since: api.dropped != dropped or api.version > since, 1
                )
                news = [e for e in api.events if e[0] > since and e[1] == kind]
                since = api.version
                if api.dropped != dropped:
                    return
            for _, _, event, one in news:
                if namespace in ("", one["metadata"].get("namespace")) or event == "BOOKMARK":
                    self._line({"type": event, "object": one})
            while api.garbage:
                self._chunk(api.garbage.pop(0))

    def _line(self, event: Document) -> None:
        self._chunk(json.dumps(event).encode() + b"\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


@contextmanager
def api_server() -> Iterator[ApiServer]:
    api = ApiServer()
    handler = type("Handler", (_Handler,), {"api": api})
    server = _Quiet(("127.0.0.1", 0), handler)
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield api
    finally:
        api.drop_watches()
        server.shutdown()
        server.server_close()


# Objects, as small as they may be


def node(name: str, gpus: int = 8, *, resource: str = "nvidia.com/gpu", **labels: str) -> Document:
    capacity = {"cpu": "64", "memory": "512Gi", resource: str(gpus)} if gpus else {"cpu": "8"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
        "spec": {},
        "status": {"capacity": capacity, "conditions": [ready]},
    }


def pod(
    name: str,
    gpus: int = 1,
    *,
    on: str = "",
    phase: str = "Pending",
    owner: tuple[str, str, str] | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    namespace: str = "default",
    resource: str = "nvidia.com/gpu",
    **spec: Any,
) -> Document:
    meta: Document = {
        "name": name,
        "namespace": namespace,
        "uid": f"{abs(hash((namespace, name))):032x}",
        "creationTimestamp": "2026-11-15T20:00:00Z",
        "labels": labels or {},
        "annotations": annotations or {},
    }
    if owner:
        kind, owner_name, uid = owner
        meta["ownerReferences"] = [
            {"kind": kind, "name": owner_name, "uid": uid, "controller": True}
        ]
    placed = {
        "type": "PodScheduled",
        "status": "True",
        "lastTransitionTime": "2026-11-15T20:05:00Z",
    }
    waits = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
    }
    limits = {resource: str(gpus)} if gpus else {}
    return {
        "metadata": meta,
        "spec": {
            "containers": [{"name": "c", "resources": {"limits": limits}}],
            **({"nodeName": on} if on else {}),
            **spec,
        },
        "status": {"phase": phase, "conditions": [placed if on else waits]},
    }


def batch_job(
    name: str, uid: str, gpus: int = 1, *, namespace: str = "default", **spec: Any
) -> Document:
    limits = {"nvidia.com/gpu": str(gpus)}
    template = {"spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "creationTimestamp": "2026-11-15T20:00:00Z",
        },
        "spec": {"template": template, **spec},
        "status": {},
    }
