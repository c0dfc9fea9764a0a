"""Putting work into the queue, with its mistakes as its result."""

import asyncio
import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from mint.core.errors import Fault, MintError, ServerFaultError, UserError
from mint.core.ids import ModelId, OperationId, Owner, SamplerId, model_id
from mint.core.lora import LoraSpec
from mint.core.operations import Failure, ImportAdapter, InterpolateCheckpoints, Operation
from mint.server.service.link import Link
from mint.server.store.records import NewModel, NewOperation, NewSampler, NewSession
from mint.server.store.store import Store
from mint.wire import payloads

_log = logging.getLogger("mint.service")

InOwnRun = ImportAdapter | InterpolateCheckpoints
"""Operations that write a checkpoint which no model in training has made."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Work that may be queued."""

    operation: Operation
    payload: bytes | None = None
    """The operation as the client encoded it, where that is the form we keep."""
    tokens: int = 0
    """Work it asks for, in tokens."""
    model: NewModel | None = None
    """The model this operation makes."""
    sampler: NewSampler | None = None
    """The sampling session this operation makes."""


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A request for work that has been accepted.

    Attributes:
        kind: class name of the operation asked for, known even when it cannot be made.
        scope, seq_id: its name for retries, see NewOperation.
        model_id, sampler_id: existing ones it works on.
        prepare: makes the operation, in a thread. A UserError or ServerFaultError of it becomes the
            operation's failed result, since a refusal here can stall the client for good (wire-protocol.md, 3.5);
            NotFoundError and OverloadedError refuse the request.
    """

    owner: Owner
    kind: str
    scope: str
    seq_id: int | None
    prepare: Callable[[], Prepared]
    model_id: ModelId | None = None
    sampler_id: SamplerId | None = None
    is_harmless: bool = False
    """Its failure means nothing to what comes after it on the model, as for a pass that gathers no
    gradient: the failed row then names no model."""


class Submissions:
    """The way into the queue."""

    def __init__(self, store: Store, link: Link) -> None:
        self._store = store
        self._link = link

    async def submit(self, submission: Submission) -> OperationId:
        """Record the work durably, wake the engine process, and return the operation's id.

        Raises:
            NotFoundError: what it works on does not exist for this owner.
        """
        operation_id = await asyncio.to_thread(self._enqueue, submission)
        self._link.wake()
        return operation_id

    async def submit_in_own_run(
        self, new: NewSession, kind: str, make: Callable[[ModelId], InOwnRun], done: str
    ) -> tuple[OperationId, ModelId]:
        """Queue what writes a checkpoint under a run of its own, which never lives: its session is
        over at once, as a failed one if nothing could be queued.

        Args:
            kind: class name of the operation.
            make: the operation for that run; in a thread, with its errors as Submission.prepare's.
            done: what the session's end says.

        Returns:
            The operation, and its run. Raises as `submit`.
        """
        session = (await asyncio.to_thread(self._store.create_session, new)).session_id
        run = model_id(session, 0)

        def prepare() -> Prepared:
            operation = make(run)
            model = NewModel(
                model_id=run,
                session_id=session,
                owner=new.owner,
                base_model=operation.base_model,
                lora=LoraSpec(),  # until the engine has found the adapter's own
            )
            return Prepared(operation=operation, model=model)

        submission = Submission(
            owner=new.owner, kind=kind, scope=f"{session}/create", seq_id=0, prepare=prepare
        )
        end = ("errored", "nothing was queued")
        try:
            operation_id = await self.submit(submission)
            end = ("success", done)
            return operation_id, run
        finally:
            await asyncio.to_thread(self._store.finish_session, new.owner, session, *end)

    def _enqueue(self, submission: Submission) -> OperationId:
        outcome = _prepare(submission)
        failed = isinstance(outcome, Failure)
        row = NewOperation(
            owner=submission.owner,
            kind=submission.kind if failed else type(outcome.operation).__name__,
            payload=b"" if failed else outcome.payload or payloads.encode(outcome.operation),
            scope=submission.scope,
            seq_id=submission.seq_id,
            model_id=_model_id(submission, outcome),
            sampler_id=_sampler_id(submission, outcome),
            tokens=0 if failed else outcome.tokens,
        )
        return self._store.enqueue(
            row,
            model=None if failed else outcome.model,
            sampler=None if failed else outcome.sampler,
            failure=outcome if failed else None,
        )


def _model_id(submission: Submission, outcome: Prepared | Failure) -> ModelId | None:
    if isinstance(outcome, Prepared) and outcome.model:
        return outcome.model.model_id
    if isinstance(outcome, Failure) and submission.is_harmless:
        return None
    return submission.model_id


def _sampler_id(submission: Submission, outcome: Prepared | Failure) -> SamplerId | None:
    if isinstance(outcome, Prepared) and outcome.sampler:
        return outcome.sampler.sampler_id
    return submission.sampler_id


def _prepare(submission: Submission) -> Prepared | Failure:
    try:
        return submission.prepare()
    except (UserError, ServerFaultError) as error:
        return Failure(str(error), error.fault)
    except MintError:
        raise
    except Exception:
        # Ours, not the caller's; yet a bare 500 would make the client send it again for minutes.
        incident = uuid.uuid4().hex[:12]
        _log.exception("incident %s: preparing a %s failed", incident, submission.kind)
        return Failure(
            f"internal error while reading this {submission.kind} (incident {incident}, see the "
            "server's log). The model is unchanged.",
            Fault.SERVER,
        )
