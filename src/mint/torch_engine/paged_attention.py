"""Attention through block tables: who writes and reads which pages, and a way of computing it that
needs no kernel for it. paged_kernel has the other one.

Shapes: T packed tokens, N texts, W pages of the longest text, P pages of a pool, S tokens of a page,
H query heads, K key heads, D head width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mint.torch_engine.kv_pages import PagePool


@dataclass(frozen=True)
class Span:
    """Tokens of one text that a plan computes.

    Attributes:
        pages: where the text's pages lie in the pools.
        start, stop: positions of its queries; each sees all before it, and itself.
        written: up to this position others write the keys and values.
    """

    pages: Sequence[int]
    start: int
    stop: int
    written: int


@dataclass(frozen=True, eq=False)
class Queries:
    """What a kernel wants to know of the texts of a plan; all tensors int32.

    Attributes:
        cu_seqlens_q: `[N + 1]`, where each text's queries begin among the T.
        cu_seqlens_k: `[N + 1]`, the same for keys, as if every text filled its whole table.
        seqused_k: `[N]`, how many keys a text has; its last query sees them all.
        block_table: `[N, W]`, each text's pages, then any.
        most_q, most_k: queries and keys of the texts that have most.
    """

    cu_seqlens_q: Tensor
    cu_seqlens_k: Tensor
    seqused_k: Tensor
    block_table: Tensor
    most_q: int
    most_k: int

    @classmethod
    def of(cls, spans: Sequence[Span], size: int, device: torch.device) -> "Queries":
        """`size`: tokens of a page."""
        counts = np.array([span.stop - span.start for span in spans])
        used = np.array([span.stop for span in spans])
        width = -(-int(used.max()) // size)
        table = np.zeros((len(spans), width), dtype=np.int32)
        for row, span in zip(table, spans, strict=True):
            pages = span.pages[:width]
            row[: len(pages)] = pages

        def on_device(values: np.ndarray) -> Tensor:
            return torch.from_numpy(values.astype(np.int32)).to(device)

        return cls(
            cu_seqlens_q=on_device(np.concatenate([[0], counts.cumsum()])),
            cu_seqlens_k=on_device(np.arange(len(spans) + 1) * width * size),
            seqused_k=on_device(used),
            block_table=on_device(table),
            most_q=int(counts.max()),
            most_k=int(used.max()),
        )


Attention = Callable[[Tensor, Tensor, Tensor, Queries, float], Tensor]
"""(q `[T, H, D]`, keys and values of a layer `[P, S, K, D]`, queries, scale) -> `[T, H, D]`"""


class PagedPlan:
    """An AttentionPlan: new tokens of several texts are written to their pages, and attend to all
    that their text has up to them. A decode step and a prefill slice are the same here."""

    def __init__(
        self, pool: PagePool, spans: Sequence[Span], attend: Attention, device: torch.device
    ) -> None:
        self._pool = pool
        self._attend = attend
        self._queries = Queries.of(spans, pool.size, device)
        rows, slots = _new_slots(spans, pool.size)
        self._slots = torch.from_numpy(slots).to(device)
        """Where new keys and values go in a pool of `[P * S]` tokens."""
        every = len(rows) == sum(span.stop - span.start for span in spans)
        self._rows = None if every else torch.from_numpy(rows).to(device)
        """Whose they are; None: everybody's, in order."""

    def attend(
        self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float
    ) -> Tensor:
        k_PSKD, v_PSKD = self._pool.k_PSKD[layer], self._pool.v_PSKD[layer]
        self._write(k_PSKD, k_KTD)
        self._write(v_PSKD, v_KTD)
        return self._attend(q_HTD.transpose(0, 1), k_PSKD, v_PSKD, self._queries, scale)

    def _write(self, pool_PSKD: Tensor, new_KTD: Tensor) -> None:
        new_TKD = new_KTD.transpose(0, 1)
        if self._rows is not None:
            new_TKD = new_TKD.index_select(0, self._rows)
        pool_PSKD.flatten(0, 1).index_copy_(0, self._slots, new_TKD)


def _new_slots(spans: Sequence[Span], size: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows among the packed tokens whose keys and values are to be written, where to)."""
    rows: list[int] = []
    slots: list[int] = []
    at = 0
    for span in spans:
        new = range(max(span.start, span.written), span.stop)
        rows += [at + position - span.start for position in new]
        # Not arrays: a decode step has one new token a span, and as many spans as rows.
        slots += [span.pages[position // size] * size + position % size for position in new]
        at += span.stop - span.start
    return np.array(rows, dtype=np.int64), np.array(slots, dtype=np.int64)


def gathered_attention(
    q_THD: Tensor, k_PSKD: Tensor, v_PSKD: Tensor, queries: Queries, scale: float
) -> Tensor:
    """By gathering each text's pages: right on every device and in every format, and slow, since
    all keys and values are copied each time."""
    if queries.most_q == 1:
        return _over_texts(q_THD[:, None], k_PSKD, v_PSKD, queries, slice(None), scale)[:, 0]
    bounds = queries.cu_seqlens_q.tolist()
    outputs = [
        _over_texts(q_THD[None, start:stop], k_PSKD, v_PSKD, queries, slice(n, n + 1), scale)[0]
        for n, (start, stop) in enumerate(pairwise(bounds))
    ]
    return torch.cat(outputs)


def _over_texts(
    q_NMHD: Tensor,
    k_PSKD: Tensor,
    v_PSKD: Tensor,
    queries: Queries,
    texts: slice,
    scale: float,
) -> Tensor:
    """M queries of each of some texts: `[N, M, H, D]`."""
    used_N = queries.seqused_k[texts]
    width = -(-int(used_N.max()) // k_PSKD.shape[1])
    table_NW = queries.block_table[texts, :width]
    k_NSKD, v_NSKD = (pool[table_NW].flatten(1, 2) for pool in (k_PSKD, v_PSKD))
    last_NM = used_N[:, None] - torch.arange(q_NMHD.shape[1], 0, -1, device=q_NMHD.device)
    sees_NMS = torch.arange(k_NSKD.shape[1], device=q_NMHD.device) <= last_NM[..., None]
    out_NHMD = F.scaled_dot_product_attention(
        *(x.transpose(1, 2) for x in (q_NMHD, k_NSKD, v_NSKD)),
        attn_mask=sees_NMS[:, None], scale=scale, enable_gqa=True,
    )  # fmt: skip
    return out_NHMD.transpose(1, 2)
