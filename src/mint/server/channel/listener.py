"""The engine process's end: listens on a loopback port and serves every API process that comes."""

import hmac
import logging
import os
import secrets
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from mint.core.ids import OperationId
from mint.server.channel.engine_file import EngineAddress, engine_file, write_address
from mint.server.channel.health import EnginePhase
from mint.server.channel.messages import (
    ENDED_PER_LINE,
    MAX_LINE_BYTES,
    Ended,
    Hello,
    Message,
    State,
    Stay,
    Stop,
    Welcome,
    decode,
    encode,
)

_log = logging.getLogger(__name__)

_HELLO_TIMEOUT_S = 10.0
_SEND_TIMEOUT_S = 5
"""An API process that does not read for so long is let go, rather than holding up the engine."""
_REMEMBERED = 20_000
"""Endings told again to an API process that attaches, since it may have missed them."""


class Listener:
    """Accepts API processes and passes messages on; all threads are its own.

    `on_message` gets Wake, Cancel and, when the last API process leaves, Stop, on a thread of the
    listener. What one API process has ended is told to the others.
    """

    def __init__(self, data: Path, fingerprint: str, on_message: Callable[[Message], None]) -> None:
        self._data = data
        self._fingerprint = fingerprint
        self._on_message = on_message
        self._token = secrets.token_urlsafe(32)
        self._lock = threading.Lock()
        self._connections: list[socket.socket] = []
        self._state = State(EnginePhase.STARTING, "starting")
        self._ended: deque[OperationId] = deque(maxlen=_REMEMBERED)
        self._lonely_since: float | None = time.monotonic()
        self._connected = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))

    def start(self) -> None:
        """Accept connections from now on, and write `engine.json`."""
        threading.Thread(target=self._accept, name="channel-accept", daemon=True).start()
        port = self._server.getsockname()[1]
        write_address(
            self._data,
            EngineAddress(
                port=port, token=self._token, pid=os.getpid(), fingerprint=self._fingerprint
            ),
        )

    def close(self) -> None:
        engine_file(self._data).unlink(missing_ok=True)
        self._server.close()
        with self._lock:
            for connection in list(self._connections):
                self._drop(connection)

    def state(
        self, phase: EnginePhase, detail: str, capacity: dict[str, Any] | None = None
    ) -> None:
        """Report what the engine process does; unchanged reports are not sent."""
        with self._lock:
            self._report(State(phase, detail, capacity, self._state.doing))

    def doing(self, what: str | None, share: float | None = None) -> None:
        """Report what keeps the engine from its operations; None: nothing any more."""
        with self._lock:
            told, doing = self._state.doing, None
            if what is not None:
                since = told["since"] if told and told["what"] == what else time.time()
                whole = None if share is None else round(share, 2)  # a report a percent
                doing = {"what": what, "since": since, "share": whole}
            self._report(replace(self._state, doing=doing))

    def ended(self, operation_ids: Iterable[OperationId]) -> None:
        """Report operations whose end is in the store."""
        with self._lock:
            ids = list(operation_ids)
            self._ended.extend(ids)
            self._tell(_in_lines(ids))

    def lonely_for_s(self) -> float:
        """Seconds since the last API process went away; 0 while one is there."""
        since = self._lonely_since
        return 0.0 if since is None else time.monotonic() - since

    def wait_connected(self, timeout_s: float) -> bool:
        return self._connected.wait(timeout_s)

    # ------------------------------------------------------- its threads

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return  # closed
            threading.Thread(
                target=self._serve, args=(connection,), name="channel-read", daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        lines = connection.makefile("rb")
        connection.settimeout(_HELLO_TIMEOUT_S)
        try:
            hello = decode(lines.readline(MAX_LINE_BYTES))
            if not (isinstance(hello, Hello) and hmac.compare_digest(hello.token, self._token)):
                raise ValueError("wrong token")
        except (OSError, ValueError):
            _log.warning("refused a connection to the engine's port without the right token")
            connection.close()
            return
        self._welcome(connection)
        try:
            while line := lines.readline(MAX_LINE_BYTES):
                self._receive(connection, decode(line))
        except (OSError, ValueError) as error:
            _log.warning("the connection to an API process broke: %s", error)
        with self._lock:
            if connection in self._connections:
                self._drop(connection)
                if not self._connections:
                    _log.warning("no API process is left; what is queued is finished without one")
            connection.close()

    def _receive(self, connection: socket.socket, message: Message) -> None:
        match message:
            case Ended(operation_ids):
                with self._lock:
                    self._ended.extend(operation_ids)
                    self._tell([message], but=connection)
            case Stop() if not self._leaves_alone(connection):
                return
            case _:
                self._on_message(message)

    def _leaves_alone(self, connection: socket.socket) -> bool:
        """Whether an API process that leaves is the last one. If not it is told so, and from now on
        it does not count: of two that leave together, one is the last."""
        with self._lock:
            if not [other for other in self._connections if other is not connection]:
                return True
            self._send(connection, encode(Stay()))
            if connection in self._connections:
                self._connections.remove(connection)
            return False

    def _welcome(self, connection: socket.socket) -> None:
        # Reading waits without limit, sending does not: SO_SNDTIMEO bounds sends alone.
        connection.settimeout(None)
        timeval = struct.pack("@ll", _SEND_TIMEOUT_S, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._connections.append(connection)
            self._lonely_since = None
            news = [
                Welcome(os.getpid(), self._fingerprint),
                *_in_lines(list(self._ended)),
                self._state,
            ]
            self._send(connection, b"".join(encode(message) for message in news))
            self._connected.set()

    # -------------------------------------------------- under the lock

    def _report(self, state: State) -> None:
        if state != self._state:
            self._state = state
            self._tell([state])

    def _tell(self, messages: list[Message], but: socket.socket | None = None) -> None:
        lines = b"".join(encode(message) for message in messages)
        for connection in list(self._connections):
            if connection is not but:
                self._send(connection, lines)

    def _send(self, connection: socket.socket, lines: bytes) -> None:
        try:
            connection.sendall(lines)
        except OSError as error:
            _log.warning("an API process does not read any more (%s); letting it go", error)
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        # Ends the reading thread's wait too, which closing alone would not.
        with suppress(OSError):  # gone already
            connection.shutdown(socket.SHUT_RDWR)
        if connection in self._connections:
            self._connections.remove(connection)
        if not self._connections:
            self._connected.clear()
            self._lonely_since = time.monotonic()


def _in_lines(ids: list[OperationId]) -> list[Message]:
    """As many messages as it takes to keep each short."""
    starts = range(0, len(ids), ENDED_PER_LINE)
    return [Ended(ids[start : start + ENDED_PER_LINE]) for start in starts]
