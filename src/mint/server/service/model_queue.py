"""The queue of one training model: what may join it, and under which name for retries."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mint.core.errors import EngineLostError, UserError
from mint.core.ids import ModelId, OperationId, Owner, SessionId, model_id
from mint.core.lora import LoraSpec
from mint.server.service.sessions import check_open
from mint.server.service.submission import Prepared, Submission, Submissions
from mint.server.store.records import Model, ModelState, NewModel
from mint.server.store.store import Store

_GONE = {
    ModelState.FAILED: "could not be created; its creation's result says why",
    ModelState.UNLOADED: "was unloaded, so its live weights are gone",
    ModelState.LOST: "was lost with the engine process, which died; its live weights are gone",
}


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """Which model of which session is to be made."""

    session_id: SessionId
    model_seq_id: int
    user_metadata: Mapping[str, str]

    @property
    def model_id(self) -> ModelId:
        return model_id(self.session_id, self.model_seq_id)

    @property
    def scope(self) -> str:
        """What model_seq_id counts in: both ways of making a model share it."""
        return f"{self.session_id}/create"

    def model(self, owner: Owner, base_model: str, lora: LoraSpec) -> NewModel:
        """The row of the model to be made."""
        return NewModel(
            model_id=self.model_id,
            session_id=self.session_id,
            owner=owner,
            base_model=base_model,
            lora=lora,
            user_metadata=self.user_metadata,
        )


class ModelQueue:
    """Work on training models, done per model in order of arrival."""

    def __init__(self, store: Store, submissions: Submissions) -> None:
        self._store = store
        self._submissions = submissions

    async def put_new(
        self, owner: Owner, run: NewRun, kind: str, prepare: Callable[[], Prepared]
    ) -> OperationId:
        """Queue the making of a model.

        Raises:
            NotFoundError: no such session.
        """

        def prepare_in_session() -> Prepared:
            check_open(self._store, owner, run.session_id)
            return prepare()

        return await self._submissions.submit(
            Submission(
                owner=owner,
                kind=kind,
                scope=run.scope,
                seq_id=run.model_seq_id,
                prepare=prepare_in_session,
            )
        )

    async def put(
        self,
        owner: Owner,
        model: ModelId,
        seq_id: int | None,
        kind: str,
        prepare: Callable[[Model], Prepared],
        *,
        is_harmless: bool = False,
    ) -> OperationId:
        """Queue work on a model. `is_harmless`: see Submission.

        Raises:
            NotFoundError: no such model.
        """

        def prepare_on_model() -> Prepared:
            row = self._store.model(owner, model)
            self._check_usable(row)
            return prepare(row)

        return await self._submissions.submit(
            Submission(
                owner=owner,
                kind=kind,
                scope=model,
                seq_id=seq_id,
                model_id=model,
                prepare=prepare_on_model,
                is_harmless=is_harmless,
            )
        )

    def _check_usable(self, row: Model) -> None:
        if row.state in _GONE:
            newest = self._store.newest_checkpoint(row.model_id)
            way_on = (
                f"Training can go on from {newest.path} "
                "(create_training_client_from_state_with_optimizer)."
                if newest
                else "It has no saved checkpoint; create a new model."
            )
            is_ours = row.state is ModelState.LOST
            error = EngineLostError if is_ours else UserError
            raise error(f"model {row.model_id!r} {_GONE[row.state]}. {way_on}")
        check_open(self._store, row.owner, row.session_id)
