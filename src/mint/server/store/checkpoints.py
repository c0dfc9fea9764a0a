"""Checkpoints: whose they are, where they lie, until when."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select
from sqlalchemy.exc import IntegrityError

from mint.core.checkpoints import CheckpointKind
from mint.core.errors import NotFoundError, UserError
from mint.core.ids import ModelId, Owner
from mint.server.store import rows
from mint.server.store.database import Database
from mint.server.store.models import insert_model
from mint.server.store.records import Checkpoint, ModelState, NewCheckpoint, NewModel
from mint.server.store.schema import checkpoints


class Checkpoints(Database):
    def checkpoint(self, owner: Owner, path: str) -> Checkpoint:
        """A checkpoint the owner may read: an own or a public one.

        Raises:
            NotFoundError: unknown, expired, deleted, or another owner's.
        """
        with self.reading() as tx:
            row = tx.execute(
                select(checkpoints).where(
                    checkpoints.c.path == path,
                    or_(checkpoints.c.owner == owner, checkpoints.c.is_public),
                    self._lives(),
                )
            ).one_or_none()
        if not row:
            raise _no_checkpoint(path)
        return rows.checkpoint(row)

    def list_checkpoints(
        self,
        owner: Owner,
        model_id: ModelId | None = None,
        limit: int = 100,
        offset: int = 0,
        *,
        kinds: Iterable[CheckpointKind] = CheckpointKind,
    ) -> list[Checkpoint]:
        """The owner's checkpoints, newest first; of one model if given."""
        with self.reading() as tx:
            found = tx.execute(
                select(checkpoints)
                .where(self._listed(owner, model_id, kinds))
                .order_by(checkpoints.c.created_at.desc(), checkpoints.c.path)
                .limit(limit)
                .offset(offset)
            ).all()
        return [rows.checkpoint(row) for row in found]

    def count_checkpoints(
        self,
        owner: Owner,
        model_id: ModelId | None = None,
        *,
        kinds: Iterable[CheckpointKind] = CheckpointKind,
    ) -> int:
        """How many `list_checkpoints` would give without a limit."""
        listed = self._listed(owner, model_id, kinds)
        with self.reading() as tx:
            return tx.execute(
                select(func.count()).select_from(checkpoints).where(listed)
            ).scalar_one()

    def add_copy(self, run: NewModel, new: NewCheckpoint) -> None:
        """Record a checkpoint whose files are there, under a run of its own that never lives.

        Raises:
            UserError: there is a run of that id already.
        """
        now = self._clock()
        with self.writing() as tx:
            try:
                with tx.begin_nested():
                    insert_model(tx, run, state=ModelState.UNLOADED, now=now)
            except IntegrityError:
                raise UserError(
                    f"{run.model_id!r} is taken, or its session is unknown; the copy needs a run "
                    "of its own."
                ) from None
            replace_checkpoint(tx, new, now)

    def set_public(self, owner: Owner, path: str, is_public: bool) -> None:
        """Let everybody with a key read a checkpoint of the owner's, or nobody else any more.

        Raises:
            NotFoundError: unknown, expired, or another owner's.
        """
        self._change(owner, path, is_public=is_public)

    def set_expiry(self, owner: Owner, path: str, expires_at: datetime | None) -> None:
        """Give a checkpoint of the owner's another end; None: it has none.

        Raises:
            NotFoundError: unknown, expired, or another owner's.
        """
        self._change(owner, path, expires_at=expires_at)

    def _change(self, owner: Owner, path: str, **values: Any) -> None:
        mine = (checkpoints.c.owner == owner) & (checkpoints.c.path == path)
        with self.writing() as tx:
            changed = tx.execute(checkpoints.update().where(mine, self._lives()).values(**values))
            if not changed.rowcount:
                raise _no_checkpoint(path)

    def newest_checkpoint(
        self, model_id: ModelId, kind: CheckpointKind = CheckpointKind.TRAINING
    ) -> Checkpoint | None:
        """The latest checkpoint of a model, as a rule of those from which training can go on."""
        with self.reading() as tx:
            row = tx.execute(
                select(checkpoints)
                .where(
                    checkpoints.c.model_id == model_id,
                    checkpoints.c.kind == kind,
                    self._lives(),
                )
                .order_by(checkpoints.c.created_at.desc(), checkpoints.c.path)
                .limit(1)
            ).one_or_none()
        return rows.checkpoint(row) if row else None

    def delete_checkpoint(self, owner: Owner, path: str) -> str:
        """Forget a checkpoint of the owner's; returns its folder, which the caller removes.

        Raises:
            NotFoundError: unknown, or another owner's (public ones too).
        """
        mine = (checkpoints.c.owner == owner) & (checkpoints.c.path == path)
        with self.writing() as tx:
            row = tx.execute(select(checkpoints.c.folder).where(mine)).one_or_none()
            if not row:
                raise _no_checkpoint(path)
            tx.execute(checkpoints.delete().where(mine))
        return row.folder

    def forget_expired(self) -> list[str]:
        """Forget checkpoints whose time is over; returns their folders for removal."""
        with self.writing() as tx:
            over = checkpoints.c.expires_at <= self._clock()
            folders = list(tx.execute(select(checkpoints.c.folder).where(over)).scalars())
            tx.execute(checkpoints.delete().where(over))
        return folders

    def checkpoint_folders(self) -> set[str]:
        """The folders of all checkpoints; any other beside them is left over from a crash."""
        with self.reading() as tx:
            return set(tx.execute(select(checkpoints.c.folder)).scalars())

    def _listed(
        self, owner: Owner, model_id: ModelId | None, kinds: Iterable[CheckpointKind]
    ) -> ColumnElement[bool]:
        listed = and_(
            checkpoints.c.owner == owner,
            checkpoints.c.kind.in_([kind.value for kind in kinds]),
            self._lives(),
        )
        return listed if model_id is None else and_(listed, checkpoints.c.model_id == model_id)

    def _lives(self):
        return or_(checkpoints.c.expires_at.is_(None), checkpoints.c.expires_at > self._clock())


def replace_checkpoint(tx: Connection, new: NewCheckpoint, now: datetime) -> str | None:
    """Record a checkpoint; returns the folder of the one it replaces."""
    same = checkpoints.c.path == new.path
    old = tx.execute(select(checkpoints.c.folder).where(same)).scalar_one_or_none()
    tx.execute(checkpoints.delete().where(same))
    tx.execute(
        checkpoints.insert().values(
            path=new.path,
            owner=new.owner,
            model_id=new.model_id,
            kind=new.kind,
            name=new.name,
            base_model=new.base_model,
            lora=rows.lora_json(new.lora),
            folder=new.folder,
            size_bytes=new.size_bytes,
            created_at=now,
            expires_at=new.expires_at,
            is_public=False,
            user_metadata=dict(new.user_metadata),
        )
    )
    return old


def _no_checkpoint(path: str) -> NotFoundError:
    return NotFoundError(
        f"there is no checkpoint {path!r}, or it has expired or been deleted. "
        "Saving returns the path to use."
    )
