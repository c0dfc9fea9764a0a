"""Training models, sampling sessions, and the base models on offer."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from sqlalchemy import ColumnElement, Connection, bindparam, func, select
from sqlalchemy.exc import IntegrityError

from mint.core.errors import NotFoundError
from mint.core.ids import ModelId, Owner, SamplerId
from mint.core.models import ServedModel
from mint.server.store import rows
from mint.server.store.database import Database
from mint.server.store.records import Model, ModelState, NewModel, NewSampler, Sampler
from mint.server.store.schema import models, samplers, served_models, sessions

_MODEL = select(models).where(
    models.c.owner == bindparam("its_owner"), models.c.model_id == bindparam("its_id")
)
_SAMPLER = select(samplers).where(
    samplers.c.owner == bindparam("its_owner"), samplers.c.sampler_id == bindparam("its_id")
)


class Models(Database):
    def model(self, owner: Owner, model_id: ModelId) -> Model:
        """Raises: NotFoundError: unknown, or another owner's."""
        with self.reading() as tx:
            row = tx.execute(_MODEL, {"its_owner": owner, "its_id": model_id}).one_or_none()
        if not row:
            raise no_model(model_id)
        return rows.model(row)

    def list_models(
        self, owner: Owner, limit: int = 100, offset: int = 0, *, project_id: str | None = None
    ) -> list[Model]:
        """The owner's models, the most recently used first; of one project if given."""
        with self.reading() as tx:
            found = tx.execute(
                select(models)
                .where(_of(owner, project_id))
                .order_by(models.c.last_request_at.desc(), models.c.model_id)
                .limit(limit)
                .offset(offset)
            ).all()
        return [rows.model(row) for row in found]

    def count_models(self, owner: Owner, *, project_id: str | None = None) -> int:
        """How many models the owner has; in one project if given."""
        with self.reading() as tx:
            return tx.execute(
                select(func.count()).select_from(models).where(_of(owner, project_id))
            ).scalar_one()

    def models_in_memory(self) -> list[Model]:
        """The models of all owners that an engine holds, as far as the store knows."""
        with self.reading() as tx:
            found = tx.execute(
                select(models).where(models.c.state == ModelState.READY).order_by(models.c.model_id)
            ).all()
        return [rows.model(row) for row in found]

    def lose_models(self, model_ids: Iterable[ModelId]) -> None:
        """Note that the engine died with these."""
        with self.writing() as tx:
            tx.execute(
                models.update()
                .where(models.c.model_id.in_(list(model_ids)))
                .values(state=ModelState.LOST)
            )

    def create_sampler(self, new: NewSampler) -> Sampler:
        """Record a sampling session; a known sampler_id gets the first one back.

        Raises:
            NotFoundError: the id is another owner's.
        """
        with self.writing() as tx:
            insert_sampler(tx, new)
            row = tx.execute(select(samplers).where(samplers.c.sampler_id == new.sampler_id)).one()
        if row.owner != new.owner:
            raise _no_sampler(new.sampler_id)
        return rows.sampler(row)

    def sampler(self, owner: Owner, sampler_id: SamplerId) -> Sampler:
        """Raises: NotFoundError: unknown, or another owner's."""
        with self.reading() as tx:
            row = tx.execute(_SAMPLER, {"its_owner": owner, "its_id": sampler_id}).one_or_none()
        if not row:
            raise _no_sampler(sampler_id)
        return rows.sampler(row)

    def add_clone(self, owner: Owner, sampler_id: SamplerId) -> int:
        """Count one more client of a sampling session, and return its number; the first has 0.

        Raises:
            NotFoundError: unknown, or another owner's.
        """
        mine = (samplers.c.owner == owner) & (samplers.c.sampler_id == sampler_id)
        with self.writing() as tx:
            number = tx.execute(
                samplers.update()
                .where(mine)
                .values(clones=samplers.c.clones + 1)
                .returning(samplers.c.clones)
            ).scalar_one_or_none()
        if number is None:
            raise _no_sampler(sampler_id)
        return number

    def pinned_among(self, sampler_ids: Iterable[SamplerId]) -> dict[SamplerId, ModelId]:
        """Which of these have weights pinned in an engine's memory, and of which model."""
        with self.reading() as tx:
            found = tx.execute(
                select(samplers.c.sampler_id, samplers.c.model_id).where(
                    samplers.c.sampler_id.in_(list(sampler_ids)),
                    samplers.c.weights == samplers.c.sampler_id,
                )
            ).all()
        return {row.sampler_id: row.model_id for row in found}

    def set_served(self, served: Sequence[ServedModel]) -> None:
        """Replace the list of base models on offer."""
        with self.writing() as tx:
            tx.execute(served_models.delete())
            for rank, model in enumerate(served):
                tx.execute(served_models.insert().values(rank=rank, **asdict(model)))

    def add_served(self, model: ServedModel) -> None:
        """Put one more base model on offer, or replace the one of that name."""
        with self.writing() as tx:
            tx.execute(served_models.delete().where(served_models.c.name == model.name))
            last = tx.execute(select(func.max(served_models.c.rank))).scalar_one()
            rank = 0 if last is None else last + 1
            tx.execute(served_models.insert().values(rank=rank, **asdict(model)))

    def served(self) -> list[ServedModel]:
        """The base models on offer, in the order the server was told them."""
        with self.reading() as tx:
            found = tx.execute(select(served_models).order_by(served_models.c.rank)).all()
        return [rows.served(row) for row in found]


def _of(owner: Owner, project_id: str | None) -> ColumnElement[bool]:
    mine = models.c.owner == owner
    if project_id is None:
        return mine
    in_project = select(sessions.c.session_id).where(sessions.c.project_id == project_id)
    return mine & models.c.session_id.in_(in_project)


def insert_model(tx: Connection, new: NewModel, *, state: ModelState, now) -> None:
    tx.execute(
        models.insert().values(
            model_id=new.model_id,
            session_id=new.session_id,
            owner=new.owner,
            base_model=new.base_model,
            lora=rows.lora_json(new.lora),
            state=state,
            weights_version=0,
            created_at=now,
            last_request_at=now,
            user_metadata=dict(new.user_metadata),
        )
    )


def insert_sampler(tx: Connection, new: NewSampler) -> None:
    """Insert unless the id is there already."""
    try:
        with tx.begin_nested():
            tx.execute(samplers.insert().values(**asdict(new)))
    except IntegrityError:
        known = select(samplers.c.owner).where(samplers.c.sampler_id == new.sampler_id)
        if tx.execute(known).first() is None:
            raise  # another constraint: its session does not exist


def no_model(model_id: ModelId) -> NotFoundError:
    return NotFoundError(f"there is no model {model_id!r}.")


def _no_sampler(sampler_id: SamplerId) -> NotFoundError:
    return NotFoundError(f"there is no sampling session {sampler_id!r}.")
