"""Weighted sums of checkpoints."""

from collections.abc import Sequence

from mint.core.checkpoints import CheckpointKind, CheckpointRef, check_name
from mint.core.errors import NotFoundError, UserError
from mint.core.ids import ModelId, OperationId, Owner
from mint.core.interpolation import check_sum
from mint.core.operations import InterpolateCheckpoints
from mint.server.service import references
from mint.server.service.models import ModelCatalog
from mint.server.service.submission import Submissions
from mint.server.store.records import Checkpoint, NewSession
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

        def make(run: ModelId) -> InterpolateCheckpoints:
            check_sum(source_paths, coefficients)
            segment = DEFAULT_NAME if name is None else check_name(name)
            found = [self._readable(owner, path, i) for i, path in enumerate(source_paths)]
            base_model = _common_base(found)
            self._catalog.require(base_model)
            return InterpolateCheckpoints(
                model_id=run,
                base_model=base_model,
                path=str(CheckpointRef(run, CheckpointKind.SAMPLER, segment)),
                source_paths=tuple(checkpoint.path for checkpoint in found),
                coefficients=tuple(coefficients),
            )

        kind = InterpolateCheckpoints.__name__
        operation_id, _ = await self._submissions.submit_in_own_run(new, kind, make, "interpolated")
        return operation_id

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
