"""Weighted sums of checkpoints."""

import asyncio
from collections.abc import Sequence

from mint.core.checkpoints import CheckpointKind, CheckpointRef, check_name
from mint.core.errors import NotFoundError, UserError
from mint.core.ids import OperationId, Owner, model_id
from mint.core.interpolation import check_sum
from mint.core.lora import LoraSpec
from mint.core.operations import InterpolateCheckpoints
from mint.server.service import references
from mint.server.service.models import ModelCatalog
from mint.server.service.submission import Prepared, Submission, Submissions
from mint.server.store.records import Checkpoint, NewModel, NewSession
from mint.server.store.store import Store

DEFAULT_NAME = "interpolated"


class InterpolationService:
    def __init__(self, store: Store, submissions: Submissions, catalog: ModelCatalog) -> None:
        self._store = store
        self._submissions = submissions
        self._catalog = catalog

    async def interpolate(
        self,
        owner: Owner,
        source_paths: Sequence[str],
        coefficients: Sequence[float],
        name: str | None,
        idempotency_key: str | None,
    ) -> OperationId:
        """Queue the writing of a sum, under a run of its own whose session is over at once.

        Args:
            name: of the new checkpoint; None: DEFAULT_NAME.
            idempotency_key: the same for the retries of one call, which get the first one's result.
        """
        new = NewSession(
            owner=owner,
            idempotency_key=f"interpolate/{idempotency_key}" if idempotency_key else None,
            tags=("interpolate",),
            display_name="a sum of checkpoints",
        )
        session = (await asyncio.to_thread(self._store.create_session, new)).session_id
        run = model_id(session, 0)

        def prepare() -> Prepared:
            check_sum(source_paths, coefficients)
            segment = DEFAULT_NAME if name is None else check_name(name)
            found = [self._readable(owner, path, i) for i, path in enumerate(source_paths)]
            base_model = _common_base(found)
            self._catalog.require(base_model)
            operation = InterpolateCheckpoints(
                model_id=run,
                base_model=base_model,
                path=str(CheckpointRef(run, CheckpointKind.SAMPLER, segment)),
                source_paths=tuple(checkpoint.path for checkpoint in found),
                coefficients=tuple(coefficients),
            )
            shape = LoraSpec()  # until the engine has found the sum's own
            model = NewModel(
                model_id=run, session_id=session, owner=owner, base_model=base_model, lora=shape
            )
            return Prepared(operation=operation, model=model)

        submission = Submission(
            owner=owner,
            kind=InterpolateCheckpoints.__name__,
            scope=f"{session}/create",
            seq_id=0,
            prepare=prepare,
        )
        end = ("errored", "the sum was not queued")
        try:
            operation_id = await self._submissions.submit(submission)
            end = ("success", "interpolated")
            return operation_id
        finally:
            await asyncio.to_thread(self._store.finish_session, owner, session, *end)

    def _readable(self, owner: Owner, path: str, i: int) -> Checkpoint:
        try:
            return references.find(self._store, owner, path)
        except NotFoundError as error:
            raise UserError(f"source_paths[{i}]: {error}") from error


def _common_base(found: Sequence[Checkpoint]) -> str:
    first = found[0]
    for i, checkpoint in enumerate(found):
        if checkpoint.base_model != first.base_model:
            raise UserError(
                f"source_paths[{i}] was trained on {checkpoint.base_model!r}, source_paths[0] on "
                f"{first.base_model!r}: a sum needs one base model."
            )
    return first.base_model
