"""The worker's loop: one thread that owns the engine."""

import logging
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from mint.core.errors import Fault, MintError, StorageError
from mint.core.ids import OperationId
from mint.core.operations import Failure
from mint.engine.protocol import Engine, Outcome, Work
from mint.server.channel.health import EnginePhase
from mint.server.scheduler.fairness import Served
from mint.server.scheduler.plan import Limits, plan
from mint.server.store.database import utcnow
from mint.server.store.records import NO_EFFECTS, Effects, Ending, PendingOperation
from mint.server.store.store import Store
from mint.server.worker.accounting import tokens_of
from mint.server.worker.dispatch import Dispatch, encode_result, refused
from mint.server.worker.signals import Signals

_log = logging.getLogger(__name__)

SAFETY_LOOK_S = 5.0
"""The queue is read when woken; this often also without, for a wake-up that was lost."""
REPORT_EVERY_S = 1.0
STORE_AGAIN_S = 2.0
"""Between two tries of what the store refuses."""

T = TypeVar("T")


class Reports(Protocol):
    """Where the loop tells what happens; the channel's Listener is one."""

    def ended(self, operation_ids: Iterable[OperationId]) -> None: ...
    def state(
        self, phase: EnginePhase, detail: str, capacity: dict[str, Any] | None = None
    ) -> None: ...


class Worker:
    """Takes operations from the store, has them computed, and stores what came of them.

    Args:
        leave_when: asked while there is nothing to do; True ends the loop.
    """

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        data: Path,
        signals: Signals,
        reports: Reports,
        limits: Limits,
        leave_when: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._engine = engine
        self._data = data
        self._signals = signals
        self._reports = reports
        self._limits = limits
        self._leave_when = leave_when
        self._dispatch = Dispatch(store, data, clock=utcnow)
        self._queue: list[PendingOperation] = []
        self._newest_seen = 0
        self._running: dict[OperationId, tuple[PendingOperation, Work]] = {}
        self._served: Served = {}
        self._models = {model.name for model in engine.served()}
        self._looked_at = self._reported_at = float("-inf")
        self._busy_s = 0.0

    def run(self) -> None:
        """Work until told to stop, or until there is nothing to do and `leave_when` says so.

        What is queued then stays queued; what was begun goes back to the queue.
        """
        replan = True
        while not self._signals.stopping:
            replan |= self._listen()
            if replan:
                self._start_what_may()
            outcomes = self._step()
            self._end(outcomes)
            replan = bool(outcomes)
            self._report()
            if not self._engine.busy and not replan:
                if not self._running and self._leave_when():
                    break
                self._signals.wait(SAFETY_LOOK_S)
        self._kept(lambda: self._store.requeue(list(self._running)))

    # ------------------------------------------------------------- in

    def _listen(self) -> bool:
        """Take in what other threads told; True: the queue has changed."""
        told = self._signals.take()
        for operation_id in told.cancelled:
            self._engine.cancel(operation_id)
        now = time.monotonic()
        late = now - self._looked_at >= SAFETY_LOOK_S
        if not (told.woken or late):
            return False
        self._looked_at = now
        if late:
            self._queue = self._kept(self._store.pending)
        else:
            self._queue += self._kept(lambda: self._store.pending(after=self._newest_seen))
        self._newest_seen = max((op.arrival for op in self._queue), default=self._newest_seen)
        return True

    def _start_what_may(self) -> None:
        running = [row for row, _ in self._running.values()]
        chosen = plan(self._queue, running, self._served, self._limits)
        self._served = chosen.served
        if not chosen.start:
            return
        rows = {row.operation_id: row for row in self._queue}
        for operation_id, kind, payload in self._kept(lambda: self._store.take(chosen.start)):
            self._start(rows[operation_id], kind, payload)
        started = set(chosen.start)
        self._queue = [row for row in self._queue if row.operation_id not in started]

    def _start(self, row: PendingOperation, kind: str, payload: bytes) -> None:
        try:
            work = self._dispatch.work(row, kind, payload)
        except MintError as error:
            failure = Failure(str(error), error.fault)
        except Exception:
            _log.exception("operation %s (%s) could not be prepared", row.operation_id, kind)
            failure = Failure(_our_fault(kind), Fault.SERVER)
        else:
            self._running[row.operation_id] = (row, work)
            self._engine.start(work)
            return
        self._kept(
            lambda: self._store.finish(
                row.operation_id, None, failure, refused(row), was_started=False
            )
        )
        self._reports.ended([row.operation_id])
        self._signals.wake()  # what waited for it may start now

    def _step(self) -> list[Outcome]:
        """Let the engine compute one slice, and note how long it took."""
        if not self._engine.busy:
            return []
        began = time.perf_counter()
        outcomes = self._engine.step()
        self._busy_s += time.perf_counter() - began
        return outcomes

    # ------------------------------------------------------------ out

    def _end(self, outcomes: list[Outcome]) -> None:
        if not outcomes:
            return
        self._learn_models()
        endings = [self._ending(outcome) for outcome in outcomes]
        for folder in self._kept(lambda: self._store.finish_all(endings)):
            self._remove(folder)
        self._reports.ended([outcome.operation_id for outcome in outcomes])

    def _ending(self, outcome: Outcome) -> Ending:
        row, work = self._running.pop(outcome.operation_id)
        result, failure, effects = self._interpret(row, work, outcome)
        if failure is not None and failure.fault is Fault.SERVER:
            _log.error("operation %s (%s) failed: %s", row.operation_id, row.kind, failure.message)
        return Ending(
            operation_id=row.operation_id, result=result, failure=failure, effects=effects
        )

    def _interpret(
        self, row: PendingOperation, work: Work, outcome: Outcome
    ) -> tuple[bytes | None, Failure | None, Effects]:
        result = outcome.result
        try:
            effects = self._dispatch.effects(row, work, result)
            effects = replace(effects, tokens=tokens_of(work.operation, result))
            if isinstance(result, Failure):
                return None, result, effects
            return encode_result(work, result), None, effects
        except Exception:  # one result that cannot be kept leaves its neighbours alone
            _log.exception("the result of operation %s cannot be stored", row.operation_id)
            return None, Failure(_our_fault(row.kind), Fault.SERVER), NO_EFFECTS

    def _learn_models(self) -> None:
        """Put base models on offer that an operation has found, before it is seen to have ended."""
        for model in self._engine.served():
            if model.name not in self._models:
                self._models.add(model.name)
                self._kept(lambda model=model: self._store.add_served(model))

    def _report(self) -> None:
        now = time.monotonic()
        if now - self._reported_at >= REPORT_EVERY_S or not self._engine.busy:
            self._reported_at = now
            detail = f"{len(self._running)} operations running" if self._running else "idle"
            self._tell(detail)

    def _tell(self, detail: str) -> None:
        capacity = {**asdict(self._engine.capacity()), "busy_s": self._busy_s}
        self._reports.state(EnginePhase.UP, detail, capacity)

    def _kept(self, use: Callable[[], T]) -> T:
        """Use the store, again and again while it refuses: a full disk passes, and the weights in
        this process's memory would not come back.

        Raises:
            StorageError: it refuses, and we are to stop.
        """
        while True:
            try:
                return use()
            except StorageError as error:
                _log.error("trying again every %.0f s: %s", STORE_AGAIN_S, error)
                if self._signals.stopping:
                    raise
                self._tell(f"waiting: {error}")
                time.sleep(STORE_AGAIN_S)

    def _remove(self, folder: str) -> None:
        shutil.rmtree(self._data / folder, ignore_errors=True)


def remove_leftovers(store: Store, data: Path) -> None:
    """Remove checkpoint folders that no row names: their save never ended.

    Only while no engine process works on this folder.
    """
    named = store.checkpoint_folders()
    for folder in (data / "checkpoints").glob("*"):
        if folder.relative_to(data).as_posix() not in named:
            _log.warning("removing %s, left over from a save that never ended", folder)
            shutil.rmtree(folder, ignore_errors=True)


def _our_fault(kind: str) -> str:
    return f"the server could not handle this {kind}; its log has the details."
