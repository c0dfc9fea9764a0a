"""The durable queue: operations from their arrival to their result."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Select, bindparam, func, select

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
    Ending,
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

# The statements of every request and every operation are built once: building one takes twice as
# long as running it.
_RECORD = select(*(column for column in operations.c if column.name != "payload")).where(
    operations.c.owner == bindparam("its_owner"), operations.c.id == bindparam("number")
)
_WITH_STATUS = (
    select(*_SEEN)
    .where(operations.c.status == bindparam("its_status"), operations.c.id > bindparam("after"))
    .order_by(operations.c.id)
)
_PENDING_SAMPLES = (
    select(func.count())
    .select_from(operations)
    .where(
        operations.c.status == OperationStatus.PENDING,
        operations.c.owner == bindparam("its_owner"),
        operations.c.kind == "Sample",
    )
)
_TAKE = (
    operations.update()
    # A cancellation comes before or after, not in between.
    .where(
        operations.c.id.in_(bindparam("ids", expanding=True)),
        operations.c.status == OperationStatus.PENDING,
    )
    .returning(operations.c.id, operations.c.kind, operations.c.payload)
)


def _failed_pass() -> Select[tuple[int | None]]:
    """The query of `failed_pass_before`."""
    mine = (operations.c.model_id == bindparam("its_model")) & (operations.c.id < bindparam("step"))
    unseen = (operations.c.status == OperationStatus.FAILED) & operations.c.started_at.is_(None)
    steps = mine & operations.c.kind.in_(_STEPS) & ~unseen
    last_step = select(func.coalesce(func.max(operations.c.id), 0)).where(steps)
    failed = mine & operations.c.kind.in_(PASSES) & unseen
    return select(func.max(operations.c.id)).where(
        failed, operations.c.id > last_step.scalar_subquery()
    )


_FAILED_PASS = _failed_pass()


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
            if (known := first(tx, request)) is not None:
                return known  # our own earlier row answers for both
            operation_id = insert(tx, request, failure, now)
            if model is not None:
                state = ModelState.FAILED if failure else ModelState.CREATING
                insert_model(tx, model, state=state, now=now)
            if sampler is not None:
                insert_sampler(tx, sampler)
        return operation_id

    def operation(self, owner: Owner, operation_id: OperationId) -> OperationRecord:
        """Raises: NotFoundError: unknown, forgotten long after its end, or another owner's."""
        its = {"its_owner": owner, "number": number(operation_id)}
        with self.reading() as tx:
            row = tx.execute(_RECORD, its).one_or_none()
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
            return tx.execute(_PENDING_SAMPLES, {"its_owner": owner}).scalar_one()

    def failed_pass_before(self, step: OperationId, model_id: ModelId) -> OperationId | None:
        """The last pass on a model that failed before an engine saw it, between its last step and
        this one: refused when it came, cancelled while it waited, or not to be started.

        The engine cannot know of it, so whoever starts the step has to. A step that failed in the
        same way used up no gradient, so it does not count as one.
        """
        with self.reading() as tx:
            found = tx.execute(
                _FAILED_PASS, {"its_model": model_id, "step": number(step)}
            ).scalar_one()
        return None if found is None else OperationId(str(found))

    def _with_status(
        self, status: OperationStatus, limit: int | None = None, after: int = 0
    ) -> list[PendingOperation]:
        with self.reading() as tx:
            found = tx.execute(
                _WITH_STATUS.limit(limit) if limit is not None else _WITH_STATUS,
                {"its_status": status, "after": after},
            ).all()
        return [rows.pending(row) for row in found]

    def take(self, operation_ids: Sequence[OperationId]) -> list[tuple[OperationId, str, bytes]]:
        """Mark operations RUNNING and give (id, kind, payload) of each, in order of arrival.

        Those that are no longer pending (cancelled meanwhile) are left out.
        """
        ids = [number(operation_id) for operation_id in operation_ids]
        values = {"status": OperationStatus.RUNNING, "started_at": self._clock()}
        with self.writing() as tx:
            found = tx.execute(_TAKE, {"ids": ids, **values}).all()
        return [
            (OperationId(str(row.id)), row.kind, row.payload)
            for row in sorted(found, key=lambda row: row.id)
        ]

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
        ending = Ending(
            operation_id=operation_id, result=result, failure=failure, effects=effects,
            was_started=was_started,
        )  # fmt: skip
        return self.finish_all([ending])

    def finish_all(self, endings: Sequence[Ending]) -> list[str]:
        """End operations that ended together: all of them, or none if the database refuses.

        See `finish`.
        """
        now = self._clock()
        with self.writing() as tx:
            ended = [one for ending in endings if (one := end(tx, ending, now))]
            count(tx, ended, now)
            return [folder for one in ended for folder in apply(tx, one.ending.effects, now)]

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
            failure = Failure("cancelled by the caller.", Fault.CANCELLED)
            end(tx, Ending(operation_id=operation_id, failure=failure), now)
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
