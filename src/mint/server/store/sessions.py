"""Sessions: one client's visit, and what lives in it."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import bindparam, exists, func, select
from sqlalchemy.exc import IntegrityError

from mint.core.errors import NotFoundError
from mint.core.ids import Owner, SessionId
from mint.server.store import rows
from mint.server.store.database import Database
from mint.server.store.records import Model, ModelState, NewSession, Sampler, Session
from mint.server.store.schema import checkpoints, models, samplers, sessions

_SESSION = select(sessions).where(
    sessions.c.owner == bindparam("its_owner"), sessions.c.session_id == bindparam("its_id")
)


class Sessions(Database):
    def create_session(self, new: NewSession) -> Session:
        """Open a session; a repeated (owner, idempotency_key) gets the first one back."""
        now = self._clock()
        values = {
            "session_id": self._new_id(),
            "owner": new.owner,
            "idempotency_key": new.idempotency_key,
            "created_at": now,
            "last_seen_at": now,
            "tags": list(new.tags),
            "user_metadata": dict(new.user_metadata),
            "sdk_version": new.sdk_version,
            "display_name": new.display_name,
            "project_id": new.project_id,
            "key_id": new.key_id,
        }
        same = (sessions.c.owner == new.owner) & (sessions.c.idempotency_key == new.idempotency_key)
        with self.writing() as tx:
            try:
                with tx.begin_nested():  # losing the race undoes this row, nothing else
                    row = tx.execute(sessions.insert().values(values).returning(sessions)).one()
            except IntegrityError:
                row = tx.execute(select(sessions).where(same)).one()
        return rows.session(row)

    def session(self, owner: Owner, session_id: SessionId) -> Session:
        """Raises: NotFoundError: unknown, or another owner's."""
        with self.reading() as tx:
            row = tx.execute(_SESSION, {"its_owner": owner, "its_id": session_id}).one_or_none()
        if not row:
            raise _no_session(session_id)
        return rows.session(row)

    def touch_session(self, owner: Owner, session_id: SessionId) -> bool:
        """Note a sign of life. False: the session is finished or unknown."""
        with self.writing() as tx:
            touched = tx.execute(
                sessions.update()
                .where(_own(owner, session_id), sessions.c.finished_at.is_(None))
                .values(last_seen_at=self._clock())
            )
        return touched.rowcount > 0

    def finish_session(
        self, owner: Owner, session_id: SessionId, reason: str, detail: str | None = None
    ) -> bool:
        """End a session; the first reason stays. True: this call ended it.

        Raises:
            NotFoundError: unknown, or another owner's.
        """
        with self.writing() as tx:
            ended = tx.execute(
                sessions.update()
                .where(_own(owner, session_id), sessions.c.finished_at.is_(None))
                .values(finished_at=self._clock(), finish_reason=reason, finish_detail=detail)
            )
            if ended.rowcount:
                return True
            if not tx.execute(select(sessions.c.owner).where(_own(owner, session_id))).first():
                raise _no_session(session_id)
        return False

    def silent_sessions(self, before: datetime) -> list[Session]:
        """Open sessions that were last heard of before that time, of all owners."""
        with self.reading() as tx:
            found = tx.execute(
                select(sessions)
                .where(sessions.c.finished_at.is_(None), sessions.c.last_seen_at < before)
                .order_by(sessions.c.last_seen_at)
            ).all()
        return [rows.session(row) for row in found]

    def half_ended_sessions(self) -> list[Session]:
        """Ended sessions of all owners with something left in them: their process was killed, or
        something was made, between their end and its clearing up."""
        its_models = exists().where(
            models.c.session_id == sessions.c.session_id,
            models.c.state.in_([ModelState.CREATING, ModelState.READY]),
        )
        its_samplers = exists().where(samplers.c.session_id == sessions.c.session_id)
        with self.reading() as tx:
            found = tx.execute(
                select(sessions)
                .where(sessions.c.finished_at.is_not(None), its_models | its_samplers)
                .order_by(sessions.c.finished_at)
            ).all()
        return [rows.session(row) for row in found]

    def session_objects(self, session_id: SessionId) -> tuple[list[Model], list[Sampler]]:
        """All models and samplers made in a session."""
        with self.reading() as tx:
            its_models = tx.execute(
                select(models)
                .where(models.c.session_id == session_id)
                .order_by(models.c.created_at, models.c.model_id)
            ).all()
            its_samplers = tx.execute(
                select(samplers)
                .where(samplers.c.session_id == session_id)
                .order_by(samplers.c.sampler_id)
            ).all()
        return [rows.model(row) for row in its_models], [rows.sampler(row) for row in its_samplers]

    def assign_project(self, owner: Owner, session_id: SessionId, project_id: str) -> None:
        """Put a session into a project.

        Raises:
            NotFoundError: unknown, or another owner's.
        """
        with self.writing() as tx:
            moved = tx.execute(
                sessions.update().where(_own(owner, session_id)).values(project_id=project_id)
            )
            if not moved.rowcount:
                raise _no_session(session_id)

    def sessions_before(
        self, owner: Owner, before: tuple[datetime, str] | None, limit: int
    ) -> list[Session]:
        """The owner's sessions, newest first, from behind one (its time and id) on."""
        query = select(sessions).where(sessions.c.owner == owner)
        if before is not None:
            at, session_id = before
            query = query.where(
                (sessions.c.created_at < at)
                | ((sessions.c.created_at == at) & (sessions.c.session_id > session_id))
            )
        query = query.order_by(sessions.c.created_at.desc(), sessions.c.session_id)
        with self.reading() as tx:
            found = tx.execute(query.limit(limit)).all()
        return [rows.session(row) for row in found]

    def session_storage(self, session_ids: Iterable[SessionId]) -> dict[SessionId, tuple[int, int]]:
        """Per session with checkpoints, how many there are and their bytes."""
        query = (
            select(models.c.session_id, func.count(), func.sum(checkpoints.c.size_bytes))
            .join(checkpoints, checkpoints.c.model_id == models.c.model_id)
            .where(models.c.session_id.in_(list(session_ids)))
            .group_by(models.c.session_id)
        )
        with self.reading() as tx:
            return {SessionId(row[0]): (row[1], int(row[2])) for row in tx.execute(query)}

    def list_sessions(self, owner: Owner, limit: int = 100, offset: int = 0) -> list[Session]:
        """The owner's sessions, newest first."""
        with self.reading() as tx:
            found = tx.execute(
                select(sessions)
                .where(sessions.c.owner == owner)
                .order_by(sessions.c.created_at.desc(), sessions.c.session_id)
                .limit(limit)
                .offset(offset)
            ).all()
        return [rows.session(row) for row in found]


def _own(owner: Owner, session_id: SessionId):
    return (sessions.c.owner == owner) & (sessions.c.session_id == session_id)


def _no_session(session_id: SessionId) -> NotFoundError:
    return NotFoundError(f"there is no session {session_id!r}.")
