"""A reverse KL against a fixed reference, in parts as a training pass has them.

The student's data is packed, cut and run as that of any pass, together with other passes if they
wait. When its hidden states are there, the reference reads the same continuations behind its own
prompts, without gradient; then both heads run over the same chunks of positions, so that a rows x
vocabulary table of either exists for one chunk at a time.

Shapes: T packed tokens of a part, E model width, V vocabulary, P (position, target) pairs, C places
(pairs that share both positions share a place), N places of a chunk.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mint.core.errors import UserError
from mint.core.models import ServedModel
from mint.core.operations import ReverseKL, ReverseKLResult
from mint.core.reverse_kl import CheckedReverseKL, check_reverse_kl
from mint.torch_engine.course import Course
from mint.torch_engine.decoder import Decoder
from mint.torch_engine.logprobs import Head, Pairs, chunks, never, score_chunk
from mint.torch_engine.lora import AdapterWeights, TrainedAdapter
from mint.torch_engine.models.loader import load_tokenizer
from mint.torch_engine.packing import PackedBatch
from mint.torch_engine.pass_data import PassData
from mint.torch_engine.passes import Part, PassInParts, packed

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Reference:
    """What the student is compared with. `weights` None: its base model as it is."""

    decoder: Decoder
    weights: AdapterWeights | None


def check_vocabulary(reference: ServedModel, student: ServedModel) -> None:
    """Refuse two base models whose token ids mean different texts: their KL would say nothing.

    Raises:
        UserError: names both.
    """
    theirs, ours = (
        load_tokenizer(Path(model.tokenizer_folder)).get_vocab() for model in (reference, student)
    )
    if theirs != ours:
        raise UserError(
            f"the reference {reference.name!r} has another vocabulary than {student.name!r}: the "
            "same id is another text there. Choose a reference of the same family."
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class KLPart(Part):
    """A part with what the KL needs: the packed row that predicts each pair's target."""

    row_P: Ints


class ReverseKLPass(PassInParts[KLPart]):
    """The loss and its gradient, added to the adapter's:

        L = sum over data and positions of w * KL(p || q),
        KL(p || q) = sum_v p_v (log p_v - log q_v)

    where p is softmax(student's logits / temperature), q that of the reference, and v runs over the
    whole vocabulary. No factor temperature^2 is applied (Hinton et al. 2015, arXiv:1503.02531, sec.
    2, apply one to keep the gradient's size over temperatures; scale the weights for that).

    Data in which no position has weight goes first, forward only.

    Raises:
        UserError: a datum does not fit the models; nothing was computed then.
    """

    def __init__(
        self, decoder: Decoder, adapter: TrainedAdapter, reference: Reference, operation: ReverseKL
    ) -> None:
        checked = check_reverse_kl(operation, decoder, reference.decoder)
        self._reference = reference
        self._temperature = operation.temperature
        self._reference_inputs = checked.reference_inputs
        data = _flat(operation, checked)
        super().__init__(decoder, adapter, data, data.any_of(data.values["weights"] != 0))
        self._kl_P = np.zeros_like(self.logprobs_P)

    def _prepare(self, part: Part) -> KLPart:
        return KLPart(**vars(part), row_P=self._ends(part.batch, part.members))

    def gradient(
        self, part: KLPart, hidden_TE: Tensor, tick: Callable[[float], None]
    ) -> tuple[Tensor, Tensor | None]:
        """Finds logprobs and KL `[2, P]`; see PassInParts."""
        table_RE, other_P = self._read(part, tick)
        places = _Places(
            self._put(part.row_P), other_P, self._put(self.data.targets_P[part.pairs_P])
        )
        comparison = _Comparison(
            Head(self._decoder, self.adapter, self._temperature),
            Head(self._reference.decoder, self._reference.weights, self._temperature),
            hidden_TE, table_RE, self._decoder.vocab_size, tick,
        )  # fmt: skip
        if not part.differentiated:
            return comparison.measure(places), None
        weight_P = self._put(self.data.values["weights"][part.pairs_P])
        return comparison.differentiate(places, weight_P)

    def _note(self, part: KLPart, found: Tensor) -> None:
        self.logprobs_P[part.pairs_P], self._kl_P[part.pairs_P] = found.cpu().numpy()

    def result(self) -> ReverseKLResult:
        weights = self.data.values["weights"]
        active = weights != 0
        kl = self._kl_P[active].astype(np.float64)
        return ReverseKLResult(
            logprobs=self.data.split(self.logprobs_P),
            reverse_kl=self.data.split(self._kl_P),
            metrics={
                "loss:sum": float(weights[active] @ kl),
                "reverse_kl:sum": float(kl.sum()),
                "reverse_kl:mean": float(kl.sum()) / max(len(kl), 1),
                "active_tokens:sum": float(len(kl)),
            },
        )

    # ------------------------------------------------------- the reference

    @torch.no_grad()
    def _read(self, part: KLPart, tick: Callable[[float], None]) -> tuple[Tensor, Tensor]:
        """(the reference's hidden states where they predict targets of the part, for each pair its
        row among them)."""
        decoder, weights = self._reference.decoder, self._reference.weights
        tables: list[Tensor] = []
        rows: dict[int, Ints] = {}
        count = 0
        # a layer of the reference, in rows of the student's head
        layer = 4 * decoder.width**2 + 3 * decoder.width * decoder.inner_width
        layer /= self._decoder.head_weight_VE.numel()
        for batch in packed(self._reference_inputs, part.members.tolist(), part.tokens):
            members = np.array(sorted(batch.rows), dtype=np.int64)
            needed, row_P = np.unique(self._ends(batch, members), return_inverse=True)
            tokens = len(batch.tokens_T)
            hidden_TE = decoder.hidden(
                self._put(batch.tokens_T), self._put(batch.positions_T), batch.plan,
                [(weights, tokens)], Course(tick=lambda n, each=layer * tokens: tick(n * each)),
            )  # fmt: skip
            tables.append(hidden_TE[self._put(needed)])
            ends = np.cumsum(self.data.sizes_N[members])[:-1]
            rows |= zip(members.tolist(), np.split(count + row_P, ends), strict=True)
            count += len(needed)
        return torch.cat(tables), self._put(np.concatenate([rows[i] for i in part.members]))

    def _ends(self, batch: PackedBatch, members: Ints) -> Ints:
        """The packed rows that predict the targets of some datums."""
        return np.concatenate([batch.rows[i][-self.data.sizes_N[i] :] for i in members])


def _flat(operation: ReverseKL, checked: CheckedReverseKL) -> PassData:
    """The student's side of the data; its pairs are those of the targets, the last positions of an
    input."""
    sizes_N = np.array([len(datum.target_tokens) for datum in operation.data], dtype=np.int64)
    return PassData(
        checked.student_inputs,
        tuple((int(size),) for size in sizes_N),
        np.cumsum(sizes_N) - sizes_N,
        sizes_N,
        np.concatenate([datum.target_tokens for datum in operation.data]),
        {"weights": np.concatenate([datum.weights for datum in operation.data])},
    )


@dataclass(frozen=True, eq=False)
class _Places:
    """Where the two models are compared: a row of the student's hidden states and one of the
    reference's, and the target after both. All int64 `[P]`."""

    student_P: Tensor
    reference_P: Tensor
    target_P: Tensor

    def of(self, chosen: Tensor) -> "_Places":
        return _Places(self.student_P[chosen], self.reference_P[chosen], self.target_P[chosen])


@dataclass(frozen=True, eq=False)
class _Comparison:
    """Two heads over the same places, chunk by chunk."""

    student: Head
    reference: Head
    student_TE: Tensor
    reference_TE: Tensor
    vocab_size: int
    tick: Callable[[float], None] = never

    def measure(self, places: _Places) -> Tensor:
        """Student's logprobs of the targets, and KL: float32 `[2, P]`, without gradient."""
        return self._run(places, None)

    def differentiate(self, places: _Places, weight_P: Tensor) -> tuple[Tensor, Tensor]:
        """(the same, d(sum of weight * KL)/d(student's hidden states) `[T, E]`). The student's
        adapter of the head gets its gradient added."""
        found_2P = torch.empty(2, len(weight_P), device=weight_P.device)
        grad_TE = torch.zeros_like(self.student_TE)
        idle, active = (weight_P == 0).nonzero()[:, 0], weight_P.nonzero()[:, 0]
        found_2P[:, idle] = self.measure(places.of(idle))
        found_2P[:, active] = self._run(places.of(active), (weight_P[active], grad_TE))
        return found_2P, grad_TE

    @torch.no_grad()
    def _run(self, places: _Places, gradient: tuple[Tensor, Tensor] | None) -> Tensor:
        """Args: gradient: (weight_P, what the gradient of the student's rows is added to)."""
        both = torch.stack([places.student_P, places.reference_P])
        (row_C, other_C), place_P = torch.unique(both, dim=1, return_inverse=True)
        found_2P = torch.empty(2, len(place_P), device=row_C.device)
        for chunk in chunks(Pairs(place_P, places.target_P), self.vocab_size):
            rows_N = row_C[chunk.rows_N]
            h_NE = self.student_TE[rows_N]
            logits_NV = self.student.logits(h_NE)
            found_2P[0, chunk.pairs], lse_N = score_chunk(logits_NV, chunk, places.target_P)
            others_NV = self.reference.logits(self.reference_TE[other_C[chunk.rows_N]])
            gap_NV, p_NV, kl_N = _divergence(logits_NV, lse_N, others_NV)
            found_2P[1, chunk.pairs] = kl_N[chunk.local]
            if gradient:
                weight_P, grad_TE = gradient
                # d(w KL)/d(logits_v) = w p_v (log p_v - log q_v - KL)
                total_N = torch.zeros_like(kl_N).index_add_(0, chunk.local, weight_P[chunk.pairs])
                d_NV = gap_NV.sub_(kl_N[:, None]).mul_(p_NV).mul_(total_N[:, None])
                grad_TE.index_add_(0, rows_N, self.student.backward(h_NE, d_NV))
            self.tick((3 if gradient else 2) * len(rows_N))
        return found_2P


def _divergence(
    logits_NV: Tensor, lse_N: Tensor, others_NV: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """(log p - log q `[N, V]`, p `[N, V]`, KL(p || q) `[N]`). Overwrites both tables of logits."""
    log_p_NV = logits_NV.sub_(lse_N[:, None])
    gap_NV = others_NV.sub_(torch.logsumexp(others_NV, dim=-1)[:, None]).neg_().add_(log_p_NV)
    p_NV = log_p_NV.exp_()
    return gap_NV, p_NV, torch.linalg.vecdot(p_NV, gap_NV)
