"""A real VictoriaMetrics on loopback that tests start, kill and start again."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.waiting import answers, free_port, until


class VictoriaRig:
    """One server with its folder; ended by its id."""

    def __init__(self, program: str, folder: Path, *more: str, prompt: bool = False) -> None:
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
        self._ended = threading.Event()
        if prompt:
            # New series show at once, not when the server's caches are renewed every 10 s.
            threading.Thread(target=self._keep_flushing, daemon=True).start()

    def _keep_flushing(self) -> None:
        while not self._ended.wait(0.2):
            with contextlib.suppress(OSError):
                self.flush()

    def start(self) -> VictoriaRig:
        """Start it, and return once it answers."""
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        ended = self.process.poll
        until(lambda: answers(f"{self.url}/health") or ended() is not None, "victoria-metrics")
        assert ended() is None, "victoria-metrics ended"
        return self

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)
        self.process = None

    def stop(self) -> None:
        """End it as an administrator does."""
        self._ended.set()
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)
            self.process = None

    def flush(self) -> None:
        """Make what was written visible."""
        urllib.request.urlopen(f"{self.url}/internal/force_flush", timeout=60).close()

    def exported(self, selector: str) -> list[dict[str, Any]]:
        """Every series that matches, as it is stored."""
        query = urllib.parse.urlencode({"match[]": selector})
        with urllib.request.urlopen(f"{self.url}/api/v1/export?{query}", timeout=60) as answer:
            return [json.loads(line) for line in answer.read().splitlines()]


class Relay:
    """Stands before a VictoriaMetrics and misbehaves as told; ``writes`` counts imports seen."""

    def __init__(self, rig: VictoriaRig) -> None:
        self.rig = rig
        # "pass", "slow", "hold", "lose the answer", or a status to answer imports with.
        self.behaviour: str | int = "pass"
        self.writes = 0
        # "hold" keeps imports waiting for ``let_go``; those who waited to the end are counted.
        self.let_go = threading.Event()
        self.held_out = 0
        self.authorization: str | None = None
        relay = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                self._relayed(None)

            def do_POST(self) -> None:
                self._relayed(self.rfile.read(int(self.headers["Content-Length"])))

            def _relayed(self, body: bytes | None) -> None:
                relay.authorization = self.headers["Authorization"]
                writing = self.path.startswith("/api/v1/import")
                relay.writes += writing
                if isinstance(relay.behaviour, int) and writing:
                    return self._answer(relay.behaviour, b'{"error":"no such \x1b[31mluck"}')
                if relay.behaviour == "slow" and writing:
                    time.sleep(1.0)
                if relay.behaviour == "hold" and writing:
                    relay.held_out += not relay.let_go.wait(120)
                status, answer = relay.forward(self.path, body, self.headers["Content-Type"])
                if relay.behaviour == "lose the answer" and writing:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return None
                return self._answer(status, answer)

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def forward(self, path: str, body: bytes | None, kind: str | None) -> tuple[int, bytes]:
        """What the real server says."""
        headers = {"Content-Type": kind} if kind else {}
        request = urllib.request.Request(self.rig.url + path, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
