"""Who is calling."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from mint.core.errors import AuthenticationError
from mint.core.ids import KeyId, Owner
from mint.server.auth.keys import hash_secret

NOTE_USE_EVERY = timedelta(minutes=1)
"""How exactly a key's last use is known: a write for every request would be many."""


@dataclass(frozen=True, kw_only=True)
class Principal:
    """The caller of one request."""

    owner: Owner
    key_id: KeyId
    is_admin: bool = False


class _Key(Protocol):
    @property
    def key_id(self) -> KeyId: ...
    @property
    def owner(self) -> Owner: ...
    @property
    def is_admin(self) -> bool: ...
    @property
    def last_used_at(self) -> datetime | None: ...


class KeyBook(Protocol):
    """Where keys are looked up; the store is one."""

    def key_by_hash(self, secret_hash: str) -> _Key | None: ...
    def note_key_use(self, key_id: KeyId) -> None: ...


class Authenticator:
    """Turns a header's text into a Principal, and notes which keys are in use.

    Args:
        clock: gives the present time, zone-aware UTC.
    """

    def __init__(
        self, book: KeyBook, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._book = book
        self._clock = clock

    def principal(self, header_value: str | None) -> Principal:
        """The caller who sent this `X-API-Key` (or `Authorization: Bearer …`) value.

        Raises:
            AuthenticationError: nothing was sent, or the key is unknown or revoked.
        """
        secret = (header_value or "").strip().removeprefix("Bearer ").strip()
        if not secret:
            raise AuthenticationError(
                "no API key. Send one in the X-API-Key header (clients: set MINT_API_KEY). "
                "On the server, `mint keys create NAME` makes one."
            )
        key = self._book.key_by_hash(hash_secret(secret))
        if key is None:
            raise AuthenticationError(
                "this API key is unknown or revoked. On the server, `mint keys list` shows the "
                "keys there are and `mint keys create NAME` makes one."
            )
        if key.last_used_at is None or self._clock() - key.last_used_at >= NOTE_USE_EVERY:
            self._book.note_key_use(key.key_id)
        return Principal(owner=key.owner, key_id=key.key_id, is_admin=key.is_admin)
