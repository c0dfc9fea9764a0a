"""The engine process's end: listens on a loopback port and serves one API process at a time."""

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
    """Accepts the API process and passes messages on; all threads are its own.

    `on_message` gets Wake, Cancel and Stop, on the listener's thread. The newest connection wins:
    a restarted API process replaces one whose end was not noticed.
    """

    def __init__(self, data: Path, fingerprint: str, on_message: Callable[[Message], None]) -> None:
        self._data = data
        self._fingerprint = fingerprint
        self._on_message = on_message
        self._token = secrets.token_urlsafe(32)
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
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
            self._drop()

    def state(
        self, phase: EnginePhase, detail: str, capacity: dict[str, Any] | None = None
    ) -> None:
        """Report what the engine process does; unchanged reports are not sent."""
        with self._lock:
            state = State(phase, detail, capacity)
            if state != self._state:
                self._state = state
                self._send(state)

    def detail(self, detail: str) -> None:
        """Report something about what goes on; phase and capacity stay as they were."""
        self.state(EnginePhase(self._state.phase), detail, self._state.capacity)

    def ended(self, operation_ids: Iterable[OperationId]) -> None:
        """Report operations whose end is in the store."""
        with self._lock:
            ids = list(operation_ids)
            self._ended.extend(ids)
            self._send_ended(ids)

    def lonely_for_s(self) -> float:
        """Seconds since the API process went away; 0 while one is there."""
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
                self._on_message(decode(line))
        except (OSError, ValueError) as error:
            _log.warning("the connection to the API process broke: %s", error)
        with self._lock:
            if self._connection is connection:
                _log.warning("the API process went away; what is queued is finished without it")
                self._drop()
            connection.close()

    def _welcome(self, connection: socket.socket) -> None:
        # Reading waits without limit, sending does not: SO_SNDTIMEO bounds sends alone.
        connection.settimeout(None)
        timeval = struct.pack("@ll", _SEND_TIMEOUT_S, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._drop()
            self._connection = connection
            self._lonely_since = None
            self._send(Welcome(os.getpid(), self._fingerprint))
            self._send_ended(list(self._ended))
            self._send(self._state)
            self._connected.set()

    # -------------------------------------------------- under the lock

    def _send_ended(self, ids: list[OperationId]) -> None:
        for start in range(0, len(ids), ENDED_PER_LINE):
            self._send(Ended(ids[start : start + ENDED_PER_LINE]))

    def _send(self, message: Message) -> None:
        if self._connection is None:
            return
        try:
            self._connection.sendall(encode(message))
        except OSError as error:
            _log.warning("the API process does not read any more (%s); letting it go", error)
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            # Ends the reading thread's wait too, which closing alone would not.
            with suppress(OSError):  # gone already
                self._connection.shutdown(socket.SHUT_RDWR)
            self._connection = None
            self._connected.clear()
            self._lonely_since = time.monotonic()
