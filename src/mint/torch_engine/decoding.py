"""Sampling from one base model: requests in, outcomes out, one bounded slice of work at a time.

Shapes: T packed tokens, B sequences, E model width.
"""

import logging
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Row
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from mint.core.errors import Fault, MintError
from mint.core.ids import OperationId
from mint.core.operations import Failure, Sample, SampleResult
from mint.engine.protocol import Outcome
from mint.engine.turns import round_cost
from mint.torch_engine.admission import Admission, SamplingFigures
from mint.torch_engine.decoder import Decoder
from mint.torch_engine.drawing import draw_first, draw_next
from mint.torch_engine.kv_layouts import open_store
from mint.torch_engine.kv_store import KvShape, KvStore
from mint.torch_engine.lora import AdapterWeights
from mint.torch_engine.prefilling import Stretch, next_stretches, prefill
from mint.torch_engine.sample_limits import checked_prompt, room_after
from mint.torch_engine.sampler import Drawn
from mint.torch_engine.sequences import Request, Sequence, seed_of, side_by_side
from mint.torch_engine.stopping import StopRule

log = logging.getLogger(__name__)

PREFILL_TOKENS = 512
"""Prompt tokens per slice: about a second for a model of 135 M parameters on one core, so that
neither running sequences nor training wait longer."""


class Decoding:
    """Continuous batching over requests, adapters and versions: a sequence joins the batch as soon
    as there is room and leaves it with its last token.

    What is wrong with a request is its outcome; nothing here raises on bad input. One thread owns
    it; `cancel` may come from any.
    """

    def __init__(
        self,
        decoder: Decoder,
        tokenizer: Tokenizer,
        *,
        eos_ids: frozenset[int],
        max_sequences: int,
        kv_tokens: int,
        kv_layout: str = "auto",
        prefill_tokens: int = PREFILL_TOKENS,
        figures: SamplingFigures | None = None,
    ) -> None:
        """
        Args:
            max_sequences: how many may run at a time; others wait.
            kv_tokens: how many tokens of keys and values may be held.
            kv_layout: one of KV_LAYOUTS; see open_store.
            prefill_tokens: prompt tokens per round.
            figures: where to count what happens; several may share one.
        """
        self._decoder = decoder
        self._tokenizer = tokenizer
        self._eos_ids = eos_ids
        self._prefill_tokens = prefill_tokens
        shape = KvShape(
            layers=decoder.layers,
            kv_heads=decoder.kv_heads,
            head_dim=decoder.head_dim,
            dtype=decoder.dtype,
            device=decoder.device,
        )
        self._kv: KvStore[Any] = open_store(kv_layout, shape, decoder.heads, kv_tokens)
        self._admission = Admission(self._kv, max_sequences, figures or SamplingFigures())
        self._requests: dict[OperationId, Request] = {}
        self._withdrawn: set[OperationId] = set()
        self._ended: list[Outcome] = []
        self._prefilled_last = False
        self.round_tokens = 0.0
        """What the last round computed, in forward tokens: its price among other work."""

    # ---------------------------------------------------------- asked from outside

    @property
    def busy(self) -> bool:
        """Whether `round` has something to do."""
        return bool(self._requests or self._ended)

    @property
    def running(self) -> int:
        """Sequences admitted and not ended."""
        return self._admission.admitted

    @property
    def waiting(self) -> int:
        """Sequences that have no room now."""
        return self._admission.waiting

    @property
    def kv_bytes(self) -> int:
        """Keys and values, live and cached."""
        return self._kv.nbytes

    @property
    def cached_tokens(self) -> int:
        """Keys and values kept of what has ended."""
        return self._kv.cached_tokens

    def give_up_cached(self, size_bytes: int) -> None:
        """Forget so much of what is kept for later, or all of it: others need the memory."""
        self._kv.give_up(size_bytes)

    def forget_cached(self) -> None:
        """Forget all that is kept for later."""
        self._kv.clear()

    def add(
        self, operation_id: OperationId, sample: Sample, weights: AdapterWeights | None
    ) -> None:
        """Take a request in; `weights` must be a version nobody writes to, None the base model."""
        try:
            request = self._request(operation_id, sample, weights)
        except MintError as error:
            self._ended.append(Outcome(operation_id, Failure(str(error), error.fault)))
            return
        self._requests[operation_id] = request
        self._admission.add(request)

    def cancel(self, operation_id: OperationId) -> None:
        """End a request with the next round. Unknown ids are ignored."""
        self._withdrawn.add(operation_id)

    def round(self) -> list[Outcome]:
        """One slice: some prompt tokens, or one more token of every running sequence."""
        self.round_tokens = 0.0
        self._drop_withdrawn()
        admission = self._admission
        self._guarded(admission.admit, lambda: [admission.front])
        # In turns: a long prompt does not freeze those who run, nor the reverse.
        to_fill = admission.prefilling or admission.resuming
        fill = bool(to_fill) and not (admission.running and self._prefilled_last)
        self._prefilled_last = fill
        with torch.no_grad():  # not inference_mode: rotary buffers a model updates serve training
            if fill:
                self._fill()
            else:
                self._guarded(self._decode, lambda: [s.request for s in admission.running])
            ready = [s for s in admission.fresh if s.prompt.last_hidden_E is not None]
            if ready:
                self._guarded(lambda: self._begin(ready), lambda: [s.request for s in ready])
        ended, self._ended = self._ended, []
        return ended

    # ------------------------------------------------------------------- requests

    def _request(
        self, operation_id: OperationId, sample: Sample, weights: AdapterWeights | None
    ) -> Request:
        """
        Raises:
            MintError: the request is wrong, or can never fit.
        """
        tokens = checked_prompt(sample, self._decoder.vocab_size)
        rule = StopRule.of(
            sample.params.stop,
            eos_ids=self._eos_ids,
            max_tokens=room_after(
                len(tokens),
                sample.params.max_tokens,
                context=self._decoder.max_context,
                held=self._kv.longest,
            ),
            tokenizer=self._tokenizer,
        )
        seed = seed_of(sample)
        prompt = self._admission.prompt(tokens, weights, sample, seed)
        return Request(operation_id, sample, prompt, rule, seed, prompt.scores)

    def _drop_withdrawn(self) -> None:
        while self._withdrawn:
            request = self._requests.get(self._withdrawn.pop())
            if request:
                self._fail(request, "cancelled by the caller.", Fault.CANCELLED)

    def _end(self, request: Request, result: SampleResult | Failure) -> None:
        del self._requests[request.operation_id]
        self._admission.forget(request)
        self._ended.append(Outcome(request.operation_id, result))

    def _fail(self, request: Request, message: str, fault: Fault) -> None:
        if request.operation_id in self._requests:
            self._end(request, Failure(message, fault))

    def _guarded(self, compute: Callable[[], None], users: Callable[[], Iterable[Request]]) -> None:
        """The boundary where whatever a slice throws (out of memory, mostly) becomes the outcome of
        the requests that took part in it; the others go on."""
        try:
            compute()
        except Exception as error:
            failed = list(users())
            log.exception("a sampling slice failed; %d sequences were in it", len(failed))
            for request in failed:
                self._fail(
                    request,
                    f"sampling failed in the engine: {error} Send the request again; if memory "
                    "ran out, with fewer samples or a shorter prompt.",
                    Fault.SERVER,
                )

    # --------------------------------------------------------------------- slices

    def _fill(self) -> None:
        """Some tokens of prompts, and of sequences that were set back."""
        stretches = next_stretches(self._admission, self._kv, self._prefill_tokens)
        if stretches:
            texts = {stretch.of for stretch in stretches}
            users = [
                request
                for request in self._requests.values()
                if request.prompt in texts or not texts.isdisjoint(request.sequences)
            ]
            self._guarded(lambda: self._prefill(stretches), lambda: users)
        for sequence in self._admission.refilled():
            self._guarded(
                lambda s=sequence: self._admission.go_on(s), lambda s=sequence: [s.request]
            )

    def _prefill(self, stretches: list[Stretch]) -> None:
        self.round_tokens = round_cost(0, prefilled=sum(len(s.tokens) for s in stretches))
        for prompt in prefill(self._decoder, self._kv, stretches):
            self._admission.filled(prompt)

    def _begin(self, ready: list[Sequence]) -> None:
        """Draw first tokens."""
        ready = side_by_side(ready)
        for sequence in ready:
            self._admission.start(sequence)
        for rows, drawn in draw_first(self._decoder, ready):
            self._take(drawn, rows)

    def _decode(self) -> None:
        """One more token of every running sequence."""
        self._admission.grow()
        rows = side_by_side(self._admission.running)
        if not rows:
            return
        self.round_tokens = round_cost(len(rows))
        texts = [s.kv for s in rows if s.kv]
        hidden_BE = self._decoder.hidden(
            self._on_device(np.array([s.tokens[-1] for s in rows])),
            self._on_device(np.array([s.position for s in rows])),
            self._kv.decode_plan(texts),
            [(s.prompt.weights, 1) for s in rows],
        )
        for text in texts:
            text.used += 1
        for some, drawn in draw_next(self._decoder, hidden_BE, rows):
            self._take(drawn, some)

    def _take(self, drawn: Drawn, rows: Row[Sequence]) -> None:
        tokens, logprobs = drawn.tokens_N.tolist(), drawn.logprobs_N.tolist()
        finite = drawn.finite_N.tolist()
        best = [x.tolist() for x in drawn.topk] if drawn.topk else None
        for row, sequence in enumerate(rows):
            request = sequence.request
            if not finite[row]:
                self._fail(request, *_not_finite(sequence))
            if request.operation_id not in self._requests:
                continue  # this or another sequence of it has failed
            sequence.tokens.append(tokens[row])
            sequence.logprobs.append(logprobs[row])
            k = request.sample.topk_sample_logprobs
            if best and k:
                sequence.topk_ids.append(best[0][row][:k])
                sequence.topk_logprobs.append(best[1][row][:k])
            sequence.stop_reason = request.stop_rule.reason(sequence.tokens)
            if sequence.stop_reason:
                self._admission.leave(sequence)
                if request.is_finished:
                    self._end(request, request.result())

    def _on_device(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values.astype(np.int64)).to(self._decoder.device)


def _not_finite(sequence: Sequence) -> tuple[str, Fault]:
    weights = sequence.prompt.weights
    where = f"sample {sequence.number}, token {len(sequence.tokens)}: the logits are not finite"
    if weights is None:
        return f"{where}. The base model's weights or numbers are at fault.", Fault.SERVER
    return (
        f"{where}. The adapter's weights (version {weights.version}) have probably diverged in "
        "training: load an earlier checkpoint, and lower the learning rate.",
        Fault.USER,
    )
