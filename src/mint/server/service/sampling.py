"""Sampling sessions, and sampling from them."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from mint.core.errors import UserError
from mint.core.ids import OperationId, Owner, SamplerId, SessionId, sampler_id
from mint.core.model_input import check_tokens
from mint.core.models import ServedModel
from mint.core.operations import Sample
from mint.core.prompt_scores import check_scores
from mint.server.scheduler.admission import admit_sample
from mint.server.service import references
from mint.server.service.models import ModelCatalog
from mint.server.service.sessions import check_open
from mint.server.service.submission import Prepared, Submission, Submissions
from mint.server.store.records import NewSampler, Sampler
from mint.server.store.store import Store


class SamplingService:
    """Sampling sessions keep the weights they were made with.

    Args:
        max_pending: sampling requests of one owner that may wait; above it, come back later.
    """

    def __init__(
        self,
        store: Store,
        submissions: Submissions,
        catalog: ModelCatalog,
        *,
        max_pending: int,
    ) -> None:
        self._store = store
        self._submissions = submissions
        self._catalog = catalog
        self._max_pending = max_pending

    async def create_session(
        self,
        owner: Owner,
        session_id: SessionId,
        sampling_session_seq_id: int,
        *,
        base_model: str | None,
        path: str | None,
    ) -> Sampler:
        """Open a sampling session on a checkpoint, or on a base model as it is.

        Raises:
            NotFoundError: no such session or checkpoint.
            UserError: neither or both were named, or the base model is not served here.
        """
        await asyncio.to_thread(check_open, self._store, owner, session_id)
        if (base_model is None) == (path is None):
            raise UserError("give either base_model or model_path, not both.")
        weights = None
        if path is not None:
            checkpoint = await asyncio.to_thread(references.find, self._store, owner, path)
            base_model, weights = checkpoint.base_model, checkpoint.path
        assert base_model is not None
        served = await self._catalog.find(owner, base_model)
        new = NewSampler(
            sampler_id=sampler_id(session_id, sampling_session_seq_id),
            session_id=session_id,
            owner=owner,
            base_model=served.name,
            weights=weights,
        )
        return await asyncio.to_thread(self._store.create_sampler, new)

    async def sampler(self, owner: Owner, sampler: SamplerId) -> Sampler:
        """Raises: NotFoundError: unknown, or another owner's."""
        return await asyncio.to_thread(self._store.sampler, owner, sampler)

    async def join(self, owner: Owner, sampler: SamplerId) -> int:
        """Count one more client of a sampling session; its number, from 1 on, is its own.

        Raises:
            NotFoundError: no such sampling session.
        """
        return await asyncio.to_thread(self._store.add_clone, owner, sampler)

    async def sample(
        self,
        owner: Owner,
        sampler: SamplerId,
        seq_id: int | None,
        make: Callable[[Sampler], Sample],
    ) -> OperationId:
        """Queue drawing continuations of one prompt.

        Args:
            make: reads the operation for the weights of its sampling session.

        Raises:
            NotFoundError: no such sampling session.
            OverloadedError: too many of this owner's wait already.
        """

        def prepare() -> Prepared:
            row = self._store.sampler(owner, sampler)
            waiting = self._store.pending_samples_of(owner)
            admit_sample(pending_samples=waiting, most=self._max_pending)
            operation = check_sample(make(row), self._catalog.known(row.base_model))
            return Prepared(operation=operation, tokens=_tokens(operation))

        return await self._submissions.submit(
            Submission(
                owner=owner,
                kind=Sample.__name__,
                scope=sampler,
                seq_id=seq_id,
                sampler_id=sampler,
                prepare=prepare,
            )
        )


def check_sample(operation: Sample, served: ServedModel | None) -> Sample:
    """Refuse a request that does not fit its model; else the same, with max_tokens filled in.

    Args:
        served: the base model, once it is known.

    Raises:
        UserError: the prompt is empty, not text, has foreign ids, or is too long.
    """
    prompt = operation.prompt.tokens()
    if not len(prompt):
        raise UserError("the prompt is empty. Give at least one token.")
    if served is None:
        return operation
    check_tokens(prompt, vocab_size=served.vocab_size, where="prompt.tokens")
    check_scores(operation, prompt_tokens=len(prompt), vocab_size=served.vocab_size)
    room = served.max_context - len(prompt)
    wanted = operation.params.max_tokens
    if wanted is None and room >= 1:
        return replace(operation, params=replace(operation.params, max_tokens=room))
    if (wanted or 1) > room:
        raise UserError(
            f"the prompt has {len(prompt)} tokens and max_tokens is "
            f"{'not given' if wanted is None else wanted}, but {served.name} holds "
            f"{served.max_context} tokens of prompt and continuation together. Shorten the prompt "
            f"or ask for at most {max(room, 0)}."
        )
    return operation


def _tokens(operation: Sample) -> int:
    return len(operation.prompt.tokens()) + operation.num_samples * (
        operation.params.max_tokens or 1
    )
