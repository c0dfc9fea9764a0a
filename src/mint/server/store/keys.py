"""API keys. Secrets never come here, only their hashes."""

from sqlalchemy import bindparam, select

from mint.core.errors import NotFoundError
from mint.core.ids import KeyId, Owner
from mint.server.store import rows
from mint.server.store.database import Database
from mint.server.store.records import Key
from mint.server.store.schema import keys

_USABLE = select(keys).where(
    keys.c.secret_hash == bindparam("its_hash"), keys.c.revoked_at.is_(None)
)


class Keys(Database):
    def create_key(
        self, owner: Owner, name: str, secret_hash: str, hint: str, is_admin: bool
    ) -> Key:
        with self.writing() as tx:
            row = tx.execute(
                keys.insert()
                .values(
                    key_id=f"key-{self._new_id()[:12]}",
                    owner=owner,
                    name=name,
                    secret_hash=secret_hash,
                    hint=hint,
                    is_admin=is_admin,
                    created_at=self._clock(),
                )
                .returning(keys)
            ).one()
        return rows.key(row)

    def key_by_hash(self, secret_hash: str) -> Key | None:
        """The key of this hash, unless it is unknown or revoked."""
        with self.reading() as tx:
            row = tx.execute(_USABLE, {"its_hash": secret_hash}).one_or_none()
        return rows.key(row) if row else None

    def key(self, key_id: KeyId) -> Key:
        """Raises: NotFoundError: there is no such key."""
        with self.reading() as tx:
            row = tx.execute(select(keys).where(keys.c.key_id == key_id)).one_or_none()
        if not row:
            raise _no_key(key_id)
        return rows.key(row)

    def note_key_use(self, key_id: KeyId) -> None:
        """Remember that a key was used now."""
        with self.writing() as tx:
            tx.execute(
                keys.update().where(keys.c.key_id == key_id).values(last_used_at=self._clock())
            )

    def list_keys(self) -> list[Key]:
        """All keys, revoked ones too, oldest first."""
        with self.reading() as tx:
            found = tx.execute(select(keys).order_by(keys.c.created_at, keys.c.key_id)).all()
        return [rows.key(row) for row in found]

    def revoke_key(self, key_id: KeyId) -> None:
        """Make a key useless from now on; a second time changes nothing.

        Raises:
            NotFoundError: there is no such key.
        """
        with self.writing() as tx:
            known = tx.execute(select(keys.c.key_id).where(keys.c.key_id == key_id)).one_or_none()
            if not known:
                raise _no_key(key_id)
            tx.execute(
                keys.update()
                .where(keys.c.key_id == key_id, keys.c.revoked_at.is_(None))
                .values(revoked_at=self._clock())
            )


def _no_key(key_id: KeyId) -> NotFoundError:
    return NotFoundError(
        f"there is no key with ID {key_id!r}. `mint keys list` shows all with their IDs."
    )
