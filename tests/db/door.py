"""A way to a database server that can be shut at any moment, and opened again: what is behind it is gone then."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from sqlalchemy.engine import make_url

if TYPE_CHECKING:
    from collections.abc import Iterator


class Door:
    """Passes bytes between a port of its own and the server's, while it is open."""

    def __init__(self, server: int) -> None:
        self._server = server
        self._listener: socket.socket | None = None
        self._passing: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.port = 0
        self.open()

    def open(self) -> None:
        """Listen, on the same port as before."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        self._start(self._accept, self._listener)

    def shut(self) -> None:
        """Cut all connections and take no new ones."""
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        for end in self._passing:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for end in self._passing:
            end.close()
        self._passing.clear()
        self._threads.clear()

    def _start(self, target: object, *arguments: socket.socket) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server))
                self._passing += [client, server]
                self._start(self._pass, client, server)
                self._start(self._pass, server, client)

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


@contextmanager
def before(url: str) -> Iterator[tuple[Door, str]]:
    """A door before the server of the URL, and the URL through it."""
    parsed = make_url(url)
    assert parsed.port is not None
    door = Door(parsed.port)
    try:
        yield door, parsed.set(port=door.port).render_as_string(hide_password=False)
    finally:
        door.shut()
