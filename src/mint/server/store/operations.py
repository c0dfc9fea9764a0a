"""The durable queue: operations from their arrival to their result."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from mint.core.errors import Fault
from mint.core.ids import ModelId, OperationId, Owner
from mint.core.operations import BEGINNINGS, PASSES, Failure
from mint.server.store import rows
from mint.server.store.database import Database
from mint.server.store.models import insert_model, insert_sampler
from mint.server.store.operation_rows import (
    apply,
    end,
    first,
    insert,
    no_operation,
    number,
    touch_model,
)
from mint.server.store.postgres import Lock, alone_in_transaction
from mint.server.store.records import (
    NO_EFFECTS,
    Effects,
    ModelState,
    NewModel,
    NewOperation,
    NewSampler,
    OperationRecord,
    OperationStatus,
    PendingOperation,
    QueuePlace,
)
from mint.server.store.schema import operations
from mint.server.store.usage import count

_SEEN = (
    operations.c.id, operations.c.kind, operations.c.owner, operations.c.model_id,
    operations.c.sampler_id, operations.c.tokens,
)  # fmt: skip
"""What the scheduler sees. Named one by one, so that payloads stay on disk."""

_STEPS = ("OptimStep", "DiscardGradients", "LoadWeights")
"""Operations that clear a model's gathered gradient."""


class Operations(Database):
    def enqueue(
        self,
        request: NewOperation,
        *,
        model: NewModel | None = None,
        sampler: NewSampler | None = None,
        failure: Failure | None = None,
    ) -> OperationId:
        """Record a request once, with the model or sampler it makes, and return its id.

        A client that never saw our answer sends the same (scope, seq_id) again; it gets the first
        id back and nothing else happens, so no optimizer step runs twice. Bodies are not compared:
        the retry of an ephemeral save carries another sampling session number. With `failure` the
        row is born FAILED, and so is the model.

        Raises:
            NotFoundError: the operation is on a model that is unknown or another owner's.
        """
        now = self._clock()
        with self.writing() as tx:
            if request.model_id is not None and model is None:
                touch_model(tx, request, now)
            # Numbers are given in the order in which rows become visible: the worker asks for
            # what came after the last one it saw, and would pass by a row that commits late.
            alone_in_transaction(tx, Lock.ARRIVAL)
            try:
                with tx.begin_nested():  # a savepoint: losing the race undoes this row only
                    operation_id = insert(tx, request, failure, now)
            except IntegrityError:
                return first(tx, request)  # our own earlier row answers for both
            if model is not None:
                state = ModelState.FAILED if failure else ModelState.CREATING
                insert_model(tx, model, state=state, now=now)
            if sampler is not None:
                insert_sampler(tx, sampler)
        return operation_id

    def operation(self, owner: Owner, operation_id: OperationId) -> OperationRecord:
        """Raises: NotFoundError: unknown, forgotten long after its end, or another owner's."""
        columns = [c for c in operations.c if c.name != "payload"]
        with self.reading() as tx:
            row = tx.execute(
                select(*columns).where(
                    operations.c.owner == owner, operations.c.id == number(operation_id)
                )
            ).one_or_none()
        if not row:
            raise no_operation(operation_id)
        return rows.operation(row)

    def place(self, operation_id: OperationId, lately: datetime) -> QueuePlace:
        """How far an operation is from its turn, and how many have ended since `lately`."""
        waits = operations.c.status == OperationStatus.PENDING
        ended = [status for status in OperationStatus if status.ended]
        with self.reading() as tx:
            before, waiting = tx.execute(
                select(
                    func.count().filter(operations.c.id < number(operation_id)), func.count()
                ).where(waits)
            ).one()
            ended_lately = tx.execute(
                select(func.count()).where(
                    operations.c.status.in_(ended), operations.c.finished_at >= lately
                )
            ).scalar_one()
        return QueuePlace(before=before, waiting=waiting, ended_lately=ended_lately)

    def pending(self, limit: int | None = None, after: int = 0) -> list[PendingOperation]:
        """What waits, in order of arrival; only arrivals later than `after`."""
        return self._with_status(OperationStatus.PENDING, limit, after)

    def running(self) -> list[PendingOperation]:
        """What an engine process took and has not ended, in order of arrival."""
        return self._with_status(OperationStatus.RUNNING)

    def pending_samples_of(self, owner: Owner) -> int:
        """How many sampling requests of one owner wait."""
        with self.reading() as tx:
            return tx.execute(
                select(func.count())
                .select_from(operations)
                .where(
                    operations.c.status == OperationStatus.PENDING,
                    operations.c.owner == owner,
                    operations.c.kind == "Sample",
                )
            ).scalar_one()

    def failed_pass_before(self, step: OperationId, model_id: ModelId) -> OperationId | None:
        """The last pass on a model that failed before an engine saw it, between its last step and
        this one: refused when it came, cancelled while it waited, or not to be started.

        The engine cannot know of it, so whoever starts the step has to. A step that failed in the
        same way used up no gradient, so it does not count as one.
        """
        mine = (operations.c.model_id == model_id) & (operations.c.id < number(step))
        unseen = (operations.c.status == OperationStatus.FAILED) & operations.c.started_at.is_(None)
        steps = mine & operations.c.kind.in_(_STEPS) & ~unseen
        last_step = select(func.coalesce(func.max(operations.c.id), 0)).where(steps)
        failed = mine & (operations.c.kind.in_(PASSES)) & unseen
        with self.reading() as tx:
            found = tx.execute(
                select(func.max(operations.c.id)).where(
                    failed, operations.c.id > last_step.scalar_subquery()
                )
            ).scalar_one()
        return None if found is None else OperationId(str(found))

    def _with_status(
        self, status: OperationStatus, limit: int | None = None, after: int = 0
    ) -> list[PendingOperation]:
        with self.reading() as tx:
            found = tx.execute(
                select(*_SEEN)
                .where(operations.c.status == status, operations.c.id > after)
                .order_by(operations.c.id)
                .limit(limit)
            ).all()
        return [rows.pending(row) for row in found]

    def take(self, operation_ids: Sequence[OperationId]) -> list[tuple[OperationId, str, bytes]]:
        """Mark operations RUNNING and give (id, kind, payload) of each, in order of arrival.

        Those that are no longer pending (cancelled meanwhile) are left out.
        """
        ids = [number(operation_id) for operation_id in operation_ids]
        wanted = (operations.c.id.in_(ids)) & (operations.c.status == OperationStatus.PENDING)
        with self.writing() as tx:
            found = tx.execute(
                select(operations.c.id, operations.c.kind, operations.c.payload)
                .where(wanted)
                .order_by(operations.c.id)
                .with_for_update()  # a cancellation comes before or after, not in between
            ).all()
            tx.execute(
                operations.update()
                .where(wanted)
                .values(status=OperationStatus.RUNNING, started_at=self._clock())
            )
        return [(OperationId(str(row.id)), row.kind, row.payload) for row in found]

    def requeue(self, operation_ids: Sequence[OperationId]) -> None:
        """Let operations wait again that an engine process took and died with."""
        ids = [number(operation_id) for operation_id in operation_ids]
        with self.writing() as tx:
            tx.execute(
                operations.update()
                .where(operations.c.id.in_(ids), operations.c.status == OperationStatus.RUNNING)
                .values(status=OperationStatus.PENDING, started_at=None)
            )

    def finish(
        self,
        operation_id: OperationId,
        result: bytes | None,
        failure: Failure | None = None,
        effects: Effects = NO_EFFECTS,
        *,
        was_started: bool = True,
    ) -> list[str]:
        """End an operation with its result or failure, and apply what its end changes.

        The payload goes, so that the disk holds results only. An operation that has ended already
        stays as it is.

        Args:
            was_started: False: it was taken for an engine that then never saw it.

        Returns:
            Folders of checkpoints that were replaced; the caller removes them, now that nothing
            names them any more.
        """
        assert (result is None) != (failure is None)
        now = self._clock()
        with self.writing() as tx:
            if not end(tx, operation_id, result, failure, now, was_started=was_started):
                return []
            count(tx, operation_id, effects, failed=failure is not None, now=now)
            return apply(tx, effects, now)

    def cancel(self, owner: Owner, operation_id: OperationId) -> OperationStatus:
        """Withdraw an operation that still waits; others stay as they are.

        Returns:
            Its status now. RUNNING: the engine has it and must be asked.

        Raises:
            NotFoundError: unknown, or another owner's.
        """
        row_id = number(operation_id)
        now = self._clock()
        with self.writing() as tx:
            row = tx.execute(
                select(operations.c.status, operations.c.kind, operations.c.model_id)
                .where(operations.c.owner == owner, operations.c.id == row_id)
                .with_for_update()
            ).one_or_none()
            if not row:
                raise no_operation(operation_id)
            if row.status != OperationStatus.PENDING:
                return OperationStatus(row.status)
            end(tx, operation_id, None, Failure("cancelled by the caller.", Fault.CANCELLED), now)
            if row.kind in BEGINNINGS:
                apply(tx, Effects(model_id=row.model_id, model_state=ModelState.FAILED), now)
        return OperationStatus.FAILED

    def forget_old(self, before: datetime) -> int:
        """Drop operations that ended before that time, results included; returns how many."""
        ended = [status for status in OperationStatus if status.ended]
        with self.writing() as tx:
            return tx.execute(
                operations.delete().where(
                    operations.c.status.in_(ended), operations.c.finished_at < before
                )
            ).rowcount
