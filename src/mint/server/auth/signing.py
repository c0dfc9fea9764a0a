"""Links that open one thing for a while, without a key: signed, not stored."""

import base64
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from mint.core.errors import AuthenticationError

_SECRET_BYTES = 32


class Signer:
    """Makes tokens that only it can make, and reads them until their time is over.

    What a token says can be read by whoever has it; it only cannot be changed.
    """

    def __init__(self, secret: bytes, clock: Callable[[], datetime]) -> None:
        self._secret = secret
        self._clock = clock

    def sign(self, said: list[str], until: datetime) -> str:
        """A token, url-safe, that says `said` until then."""
        text = json.dumps([int(until.timestamp()), *said], separators=(",", ":")).encode()
        return f"{_encode(text)}.{_encode(self._seal(text))}"

    def read(self, token: str) -> list[str]:
        """What a token says.

        Raises:
            AuthenticationError: it is not one of ours, or its time is over.
        """
        text, seal = (_decode(part) for part in f"{token}.".split(".")[:2])
        if not hmac.compare_digest(seal, self._seal(text)):
            raise AuthenticationError("this link was not made by this server, or was cut short.")
        until, *said = json.loads(text)
        if self._clock().timestamp() >= until:
            raise AuthenticationError("this link has expired. Ask the server for a new one.")
        return said

    def _seal(self, text: bytes) -> bytes:
        return hmac.digest(self._secret, text, hashlib.sha256)


def signing_secret(file: Path) -> bytes:
    """The secret in a file, which is made (0600) if it is not there.

    A file of the data folder, so that links outlive a restart and hold for all processes that
    share the folder.
    """
    try:
        with os.fdopen(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as new:
            new.write(secrets.token_bytes(_SECRET_BYTES))
    except FileExistsError:
        pass
    return file.read_bytes()


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return b""
