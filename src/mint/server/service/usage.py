"""Who uses what: for the operator, and for everybody about themselves."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from mint.core.errors import NotFoundError, UserError
from mint.core.ids import KeyId, Owner
from mint.server.auth.principal import Principal
from mint.server.store.records import Key, Storage, Usage
from mint.server.store.store import Store


@dataclass(frozen=True)
class KeyUsage:
    """A key and what was computed for it; `used` None: nothing yet."""

    key: Key
    used: Usage | None


@dataclass(frozen=True)
class OwnerUsage:
    """What one owner's keys did and what the owner stores."""

    owner: Owner
    keys: list[KeyUsage]
    unattributed: Usage | None
    """Done for the owner, but in sessions that no key is known of."""
    storage: list[Storage]


class UsageService:
    """An admin's key sees every owner, any other key its own."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def overview(self, who: Principal) -> list[OwnerUsage]:
        """What each owner's keys did since the server keeps count, and what is stored now."""
        return await asyncio.to_thread(overview, self._store, _seen_by(who))

    async def by_hour(self, who: Principal, since: datetime, before: datetime) -> list[Usage]:
        """Usage of a time, by hour, key and base model."""

        def read() -> list[Usage]:
            return self._store.usage(_seen_by(who), since=since, before=before)

        return await asyncio.to_thread(read)

    async def storage(self, who: Principal) -> list[Storage]:
        """What checkpoints take now, by owner and project."""
        return await asyncio.to_thread(self._store.storage, _seen_by(who))

    async def own_key(self, who: Principal) -> Key:
        """The key a request came with."""
        return await asyncio.to_thread(self._store.key, who.key_id)

    async def revoke_own_key(self, who: Principal) -> None:
        """Make the key useless that a request came with.

        Raises:
            UserError: it is an admin's.
        """
        if who.is_admin:
            raise _last_way_in()
        await asyncio.to_thread(self._store.revoke_key, who.key_id)

    async def revoke_key(self, who: Principal, key_id: KeyId) -> None:
        """Make a key useless from the next request on; may be repeated.

        Raises:
            NotFoundError: there is no such key, or the caller is no admin, who learns nothing.
            UserError: it is the very key the request came with.
        """
        if not who.is_admin:
            raise NotFoundError(f"there is no key {key_id!r} that this key may revoke.")
        if key_id == who.key_id:
            raise _last_way_in()
        await asyncio.to_thread(self._store.revoke_key, key_id)


def overview(store: Store, owner: Owner | None) -> list[OwnerUsage]:
    """See UsageService.overview; None: of all owners. For threads."""
    keys = [key for key in store.list_keys() if owner in (None, key.owner)]
    used = {(usage.owner, usage.key_id): usage for usage in store.usage_by_key(owner)}
    storage = store.storage(owner)
    owners = {key.owner for key in keys} | {its for its, _ in used} | {s.owner for s in storage}
    return [_of(its, keys, used, storage) for its in sorted(owners)]


def _of(
    owner: Owner,
    keys: Sequence[Key],
    used: dict[tuple[Owner, str], Usage],
    storage: Sequence[Storage],
) -> OwnerUsage:
    return OwnerUsage(
        owner,
        [KeyUsage(key, used.get((owner, key.key_id))) for key in keys if key.owner == owner],
        used.get((owner, "")),
        [stored for stored in storage if stored.owner == owner],
    )


def _seen_by(who: Principal) -> Owner | None:
    return None if who.is_admin else who.owner


def _last_way_in() -> UserError:
    return UserError(
        "an admin's key does not revoke itself over HTTP: it may be the last way in. On the "
        "server: mint keys revoke ID."
    )
