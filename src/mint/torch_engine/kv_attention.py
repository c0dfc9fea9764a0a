"""Attention over places: the plans of a prefill slice and of a decode step.

Shapes: T packed tokens, B rows of a decode step (one token of one sequence each), H query heads,
K key heads, J = H / K query heads per key head, S tokens of a place, D head width; in the batched
products N places and M queries of each.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from mint.torch_engine.kv_cache import Place, Shelf
from mint.torch_engine.kv_store import Piece

# ---------------------------------------------------------------- prefill


@dataclass(frozen=True)
class PlacedPiece(Piece[Place]):
    """`prompt`: what a continuation follows."""

    prompt: Place | None = None


class PrefillPlan:
    """Pieces of several texts, packed: each attends to the earlier keys of its own text.

    What a piece has of a donor is copied layer by layer.
    """

    def __init__(self, pieces: Sequence[PlacedPiece], device: torch.device) -> None:
        self._pieces = pieces
        self._masks = [_lower_right(p, device) if p.start or p.prompt else None for p in pieces]

    def attend(
        self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float
    ) -> Tensor:
        outputs: list[Tensor] = []
        at = 0
        for piece, mask in zip(self._pieces, self._masks, strict=True):
            rows = slice(at, at + piece.stop - piece.start)
            at = rows.stop
            k_KSD = piece.text.shelf.k_LNKSD[layer, piece.text.slot]
            v_KSD = piece.text.shelf.v_LNKSD[layer, piece.text.slot]
            if piece.donor:
                _copy(layer, piece.donor, piece.text, piece.start)
            k_KSD[:, piece.start : piece.stop] = k_KTD[:, rows]
            v_KSD[:, piece.start : piece.stop] = v_KTD[:, rows]
            k_KSD, v_KSD = k_KSD[:, : piece.stop], v_KSD[:, : piece.stop]
            if piece.prompt:
                k_KSD, v_KSD = _after(layer, piece.prompt, k_KSD, v_KSD)
            out = F.scaled_dot_product_attention(
                q_HTD[None, :, rows],
                k_KSD[None],
                v_KSD[None],
                attn_mask=mask,
                is_causal=mask is None,
                scale=scale,
                enable_gqa=q_HTD.shape[0] != k_KTD.shape[0],
            )
            outputs.append(out[0].transpose(0, 1))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _lower_right(piece: PlacedPiece, device: torch.device) -> Tensor:
    """Causal mask of a later piece: its last token sees all, each one before it one less."""
    before = piece.prompt.used if piece.prompt else 0
    queries = torch.arange(before + piece.start, before + piece.stop, device=device)
    return torch.arange(before + piece.stop, device=device) <= queries[:, None]


def _copy(layer: int, donor: Place, place: Place, stop: int) -> None:
    """What `place` lacks of its first `stop` tokens, from a place that has them."""
    lacks = slice(place.used, stop)
    for own_LKSD, given_LKSD in zip(place.content, donor.content, strict=True):
        own_LKSD[layer, :, lacks] = given_LKSD[layer, :, lacks]


def _after(layer: int, prompt: Place, k_KSD: Tensor, v_KSD: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values of a prompt, followed by these."""
    before_k_LKSD, before_v_LKSD = prompt.content
    return (
        torch.cat([before_k_LKSD[layer, :, : prompt.used], k_KSD], dim=1),
        torch.cat([before_v_LKSD[layer, :, : prompt.used], v_KSD], dim=1),
    )


# ----------------------------------------------------------------- decode

_SPARE_QUERIES = 8
"""Empty queries we accept to keep places of unequal numbers of rows in one batched product."""


@dataclass(frozen=True, eq=False)
class _Part:
    """Neighbouring places of a shelf, and the rows that attend to them.

    Attributes:
        rows: which row asks as query (place, n-th of its M), flat `[N * M]`; places with fewer
            than M rows repeat one.
        mask: `[N * K, 1, S]`, 0 where a token is, -inf elsewhere.
    """

    shelf: Shelf
    slots: slice
    rows: Tensor
    mask: Tensor

    def attend(self, layer: int, q_BHD: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
        """For every query: weighted values, not divided yet, `[N * M, H, D]`; highest score and
        sum of weights, both `[N * M, H, 1]`."""
        k_NKSD = self.shelf.k_LNKSD[layer, self.slots]
        v_NKSD = self.shelf.v_LNKSD[layer, self.slots]
        places, kv_heads = k_NKSD.shape[:2]
        k, v = k_NKSD.flatten(0, 1), v_NKSD.flatten(0, 1)
        q = _fold(q_BHD.index_select(0, self.rows), places, kv_heads)
        scores = torch.baddbmm(self.mask, q, k.transpose(1, 2), alpha=scale).float()
        highest = scores.amax(-1, keepdim=True)
        weights = scores.sub_(highest).exp_()
        total = weights.sum(-1, keepdim=True)
        out = torch.bmm(weights.to(v.dtype), v).float()
        queries = len(self.rows) // places
        return (
            _unfold(out, places, kv_heads, queries),
            _unfold(highest, places, kv_heads, queries),
            _unfold(total, places, kv_heads, queries),
        )


def _fold(q: Tensor, places: int, kv_heads: int) -> Tensor:
    """`[N * M, H, D]` -> `[N * K, M * J, D]`: the query heads that share a key head, of all rows
    of a place, become the rows of one matrix, so that its keys are read once."""
    queries, heads, d = q.shape
    q = q.view(places, queries // places, kv_heads, heads // kv_heads, d)
    return q.transpose(1, 2).reshape(places * kv_heads, -1, d)


def _unfold(out: Tensor, places: int, kv_heads: int, queries: int) -> Tensor:
    """The way back: `[N * K, M * J, D]` -> `[N * M, H, D]`."""
    out = out.view(places, kv_heads, queries, -1, out.shape[-1])
    return out.transpose(1, 2).reshape(places * queries, -1, out.shape[-1])


@dataclass(frozen=True, eq=False)
class _Side:
    """All prompts of a step, or all continuations.

    `where_B` is the query of each row in the concatenated parts; None: they are in row order.
    """

    parts: Sequence[_Part]
    where_B: Tensor | None

    def attend(self, layer: int, q_BHD: Tensor, scale: float) -> list[Tensor]:
        found = zip(*(p.attend(layer, q_BHD, scale) for p in self.parts), strict=True)
        joined = (x[0] if len(x) == 1 else torch.cat(x) for x in found)
        where = self.where_B
        return [x if where is None else x.index_select(0, where) for x in joined]


class DecodePlan:
    """One new token of each running sequence attends to its prompt and to what followed.

    The softmax over [prompt, continuation] is taken in two parts, each with its own highest score
    m, sum of weights l and weighted values o, which are then put together (as flash attention does
    over blocks; Dao et al. 2022, arXiv:2205.14135):

        out = (o_p e^(m_p - m) + o_c e^(m_c - m)) / (l_p e^(m_p - m) + l_c e^(m_c - m)),
        m = max(m_p, m_c)

    So the prompt is one product for all sequences that share it, and prompts and continuations may
    be of any lengths.
    """

    def __init__(
        self, prompts: Sequence[Place], suffixes: Sequence[Place], device: torch.device
    ) -> None:
        """Row b continues `prompts[b]` (of which several may be the same place) and writes its new
        token to `suffixes[b]`; every place in use of their shelves must be among them."""
        kv_heads = suffixes[0].shelf.k_LNKSD.shape[2]
        self._prompts = _side(_prompt_runs(prompts), kv_heads, device)
        self._suffixes = _side(_suffix_runs(suffixes), kv_heads, device, new=1)
        self._ends = [
            (torch.arange(len(used), device=device), torch.tensor(used, device=device))
            for used in ([p.used for p in part.shelf.places] for part in self._suffixes.parts)
        ]
        """Slots of each shelf, and the token of each that this step writes."""

    def attend(
        self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float
    ) -> Tensor:
        self._write(layer, k_KTD.transpose(0, 1), v_KTD.transpose(0, 1))
        q_BHD = q_HTD.transpose(0, 1)
        o_p, m_p, l_p = self._prompts.attend(layer, q_BHD, scale)
        o_c, m_c, l_c = self._suffixes.attend(layer, q_BHD, scale)
        highest = torch.maximum(m_p, m_c)
        w_p, w_c = m_p.sub_(highest).exp_(), m_c.sub_(highest).exp_()
        out = o_p.mul_(w_p).addcmul_(o_c, w_c)
        return out.div_(l_p.mul_(w_p).addcmul_(l_c, w_c)).to(q_HTD.dtype)

    def _write(self, layer: int, k_BKD: Tensor, v_BKD: Tensor) -> None:
        for part, (slots, ends) in zip(self._suffixes.parts, self._ends, strict=True):
            part.shelf.k_LNKSD[layer][slots, :, ends] = k_BKD.index_select(0, part.rows)
            part.shelf.v_LNKSD[layer][slots, :, ends] = v_BKD.index_select(0, part.rows)


@dataclass(frozen=True)
class _Run:
    """Neighbouring places, each with the rows that ask it."""

    places: list[Place]
    rows: list[list[int]]


def _suffix_runs(suffixes: Sequence[Place]) -> list[_Run]:
    """One run per shelf: its places in slot order are exactly those in use."""
    row = {place: b for b, place in enumerate(suffixes)}
    shelves = dict.fromkeys(place.shelf for place in suffixes)
    return [_Run(shelf.places, [[row[p]] for p in shelf.places]) for shelf in shelves]


def _prompt_runs(prompts: Sequence[Place]) -> list[_Run]:
    """As few runs as possible without computing much for nothing: places with very different
    numbers of rows are kept apart, those nobody asks are left out."""
    rows: dict[Place, list[int]] = {}
    for b, place in enumerate(prompts):
        rows.setdefault(place, []).append(b)
    shelves = dict.fromkeys(place.shelf for place in prompts)
    runs: list[_Run] = []
    for shelf in shelves:
        run: _Run | None = None
        for place in shelf.places:
            asking = rows.get(place)
            if asking is None:
                run = None
            elif run is not None and _stays_dense([*run.rows, asking]):
                run.places.append(place)
                run.rows.append(asking)
            else:
                run = _Run([place], [asking])
                runs.append(run)
    return runs


def _stays_dense(rows: list[list[int]]) -> bool:
    padded = len(rows) * max(map(len, rows))
    return padded <= 1.5 * sum(map(len, rows)) + _SPARE_QUERIES


def _side(runs: list[_Run], kv_heads: int, device: torch.device, new: int = 0) -> _Side:
    """`new`: tokens that this step itself adds to each place, and that its rows may see."""
    parts: list[_Part] = []
    where: dict[int, int] = {}
    at = 0
    for run in runs:
        shelf, most = run.places[0].shelf, max(map(len, run.rows))
        padded = [asking + asking[:1] * (most - len(asking)) for asking in run.rows]
        for n, asking in enumerate(run.rows):
            where |= {b: at + n * most + i for i, b in enumerate(asking)}
        at += len(padded) * most
        used = torch.tensor([place.used + new for place in run.places], device=device)
        empty = torch.arange(shelf.length, device=device) >= used[:, None]
        mask = torch.zeros(empty.shape, dtype=shelf.k_LNKSD.dtype, device=device)
        mask = mask.masked_fill_(empty, float("-inf")).repeat_interleave(kv_heads, 0)[:, None]
        first = run.places[0].slot
        slots = slice(first, first + len(run.places))
        rows = torch.tensor(padded, device=device).flatten()
        parts.append(_Part(shelf, slots, rows, mask))
    order = [where[b] for b in range(len(where))]
    in_order = order == list(range(at))
    return _Side(parts, None if in_order else torch.tensor(order, device=device))
