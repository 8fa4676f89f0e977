"""Exporters on loopback that behave, or misbehave in one way each."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Behaviour = Callable[[socket.socket, str], None]


def answer(body: bytes, *, status: str = "200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n\r\n".encode() + body


def saying(body: bytes | Callable[[], bytes], **given: object) -> Behaviour:
    def behave(connection: socket.socket, path: str) -> None:
        text = body() if callable(body) else body
        connection.sendall(answer(text, **given))

    return behave


def raw(data: bytes, *, close: bool = True) -> Behaviour:
    def behave(connection: socket.socket, path: str) -> None:
        connection.sendall(data)
        if close:
            connection.close()

    return behave


def hanging(connection: socket.socket, path: str) -> None:
    """Says nothing for as long as the other side stays."""
    connection.recv(1)


def endless(connection: socket.socket, path: str) -> None:
    """A gigabyte, as fast as it is taken."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    for _ in range(1024):
        connection.sendall(chunk)


@contextmanager
def exporter(behave: Behaviour, heads: list[bytes] | None = None) -> Iterator[str]:
    """The address of an exporter with this behaviour; ``heads`` collects what it was asked."""
    noted = [] if heads is None else heads
    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_serve, args=(server, behave, noted), daemon=True).start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.close()


def _serve(server: socket.socket, behave: Behaviour, noted: list[bytes]) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=_answer_all, args=(connection, behave, noted), daemon=True).start()


def _answer_all(connection: socket.socket, behave: Behaviour, noted: list[bytes]) -> None:
    waiting = b""
    try:
        while True:
            while b"\r\n\r\n" not in waiting:
                data = connection.recv(65536)
                if not data:
                    return
                waiting += data
            head, _, waiting = waiting.partition(b"\r\n\r\n")
            noted.append(head)
            behave(connection, head.split()[1].decode())
    except OSError:
        pass
    finally:
        connection.close()
