"""torch's varlen_attn for CUDA, as far as a CPU can play it: refuses what the kernel refuses, and
computes what it computes, in plain loops.

The demands are those of FlashAttention 2 as torch has it: aten's flash_attn/flash_api.cpp,
mha_varlen_fwd.
"""

import importlib
import inspect
from typing import Any

import torch
from torch import Tensor


def real() -> Any:
    return importlib.import_module("torch.nn.attention.varlen")


class StandIn:
    """In place of the module torch.nn.attention.varlen.

    Attributes:
        calls: (most queries, texts) of each.
        dtypes: what it takes; a test of exact numbers may add float32.
        lenient: whether it takes anything, as a kernel does that is wrong.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []
        self.dtypes = [torch.float16, torch.bfloat16]
        self.lenient = False
        self.varlen_attn = self._called
        self.varlen_attn.__func__.__signature__ = inspect.signature(real().varlen_attn)

    def _called(self, *args: Any, **named: Any) -> Tensor:
        bound = inspect.signature(real().varlen_attn).bind(*args, **named)
        accepted_by_torch(*args, **named)
        bound.apply_defaults()
        told = bound.arguments
        if not self.lenient:
            assert told["query"].dtype in self.dtypes
            check(told)
        self.calls.append((told["max_q"], len(told["seqused_k"])))
        return computed(told)


def accepted_by_torch(*args: Any, **named: Any) -> None:
    """torch's own checks and its registered shapes, on tensors without content."""

    def hollow(value: Any) -> Any:
        return value.to("meta") if isinstance(value, Tensor) else value

    out = real().varlen_attn(
        *(hollow(x) for x in args), **{name: hollow(x) for name, x in named.items()}
    )
    assert out.shape == args[0].shape


def check(told: dict[str, Any]) -> None:
    q, k, v = told["query"], told["key"], told["value"]
    table, used = told["block_table"], told["seqused_k"]
    cu_q, cu_k = told["cu_seq_q"], told["cu_seq_k"]
    texts = len(used)
    assert k.dtype == v.dtype == q.dtype
    assert q.stride(-1) == k.stride(-1) == v.stride(-1) == 1
    pages, page, kv_heads, width = k.shape
    assert v.shape == k.shape
    assert page % 256 == 0
    assert q.shape[1] % kv_heads == 0
    assert q.shape[2] == width
    assert width <= 256
    assert width % 8 == 0
    for name in ("cu_seq_q", "cu_seq_k", "seqused_k", "block_table"):
        assert told[name].dtype == torch.int32, name
        assert told[name].is_contiguous(), name
        assert told[name].device == q.device, name
    assert cu_q.shape == cu_k.shape == (texts + 1,)
    assert table.shape[0] == texts
    counts = cu_q.diff()
    assert (cu_q[0], cu_q[-1]) == (0, len(q))
    assert (counts >= 1).all()
    assert told["max_q"] == counts.max()
    assert told["max_k"] >= used.max()
    assert (used >= counts).all()
    assert (used <= page * table.shape[1]).all()
    assert (table >= 0).all()
    assert (table < pages).all()
    assert told["num_splits"] == 1, "wrong numbers otherwise: pytorch issue 194167"
    assert told["window_size"] == (-1, 0) or told["max_q"] == 1
    assert told["enable_gqa"]


def computed(told: dict[str, Any]) -> Tensor:
    q, k, v = (told[name].double() for name in ("query", "key", "value"))
    out = torch.full_like(told["query"], float("nan"))
    shared = q.shape[1] // k.shape[2]
    bounds = told["cu_seq_q"].tolist()
    for n, used in enumerate(told["seqused_k"].tolist()):
        pages = told["block_table"][n].tolist()
        keys, values = (torch.cat([pool[p] for p in pages])[:used] for pool in (k, v))
        count = bounds[n + 1] - bounds[n]
        for i in range(count):
            sees = used if told["window_size"] == (-1, -1) else used - count + 1 + i
            for head in range(q.shape[1]):
                scores = keys[:sees, head // shared] @ q[bounds[n] + i, head] * told["scale"]
                mix = scores.softmax(0) @ values[:sees, head // shared]
                out[bounds[n] + i, head] = mix.to(out.dtype)
    return out
