"""Attention through block tables by the kernel that torch has for CUDA, and whether it can serve.

Shapes: T packed tokens, N texts, P pages of a pool, S tokens of a page, H query heads, K key heads,
D head width.
"""

import importlib
import inspect
from types import ModuleType

import torch
from torch import Tensor

from mint.torch_engine.kv_store import KvShape
from mint.torch_engine.paged_attention import Queries, Span, gathered_attention

PAGE = 256
"""Tokens of a page: FlashAttention 2 reads through a table in multiples of this."""

_DTYPES = (torch.bfloat16, torch.float16)
_WIDEST = 256
"""Head width at most; the kernel wants a multiple of 8."""
_NEEDED = {"seqused_k", "block_table", "enable_gqa", "num_splits"}
"""Arguments; an older torch lacks some of them."""
_TOLERANCE = 0.03
"""Largest difference of two outputs that are averages of normal numbers, in 8 or 11 bits."""


def kernel_attention(
    q_THD: Tensor, k_PSKD: Tensor, v_PSKD: Tensor, queries: Queries, scale: float
) -> Tensor:
    """An Attention: FlashAttention 2 (Dao 2023, arXiv:2307.08691), which reads pages in place.

    Never in several parts along the keys: torch 2.13 chooses their number itself where it may, and
    then leaves rows of paged texts unwritten (github.com/pytorch/pytorch/issues/194167). In one
    part a row's numbers do not depend on its neighbours either.
    """
    # Causal means that a text's last query sees its last key. A single query sees all, and without
    # the rule the kernel makes one product of the query heads that share a key head.
    window = (-1, -1) if queries.most_q == 1 else (-1, 0)
    return _varlen().varlen_attn(
        q_THD, k_PSKD, v_PSKD,
        queries.cu_seqlens_q, queries.cu_seqlens_k, queries.most_q, queries.most_k,
        scale=scale, window_size=window, enable_gqa=True,
        seqused_k=queries.seqused_k, block_table=queries.block_table, num_splits=1,
    )  # fmt: skip


def refusal(shape: KvShape, heads: int) -> str | None:
    """Why the kernel cannot serve such a model on this device; None if it can. It is tried once and
    compared, since it depends on torch, driver and device whether it runs and is right.

    Args:
        heads: query heads.
    """
    if shape.device.type != "cuda":
        return f"the kernel is for CUDA, and the device is {shape.device}"
    if shape.dtype not in _DTYPES:
        return f"the kernel takes bfloat16 and float16, and the dtype is {shape.dtype}"
    if shape.head_dim % 8 or shape.head_dim > _WIDEST:
        return (
            f"the kernel takes heads as wide as a multiple of 8 up to {_WIDEST}, and the model's "
            f"are {shape.head_dim} wide"
        )
    return _lacking() or _difference(shape, heads)


def _varlen() -> ModuleType:
    """Imported where it is used: it brings torch's compiler with it, some seconds of start."""
    return importlib.import_module("torch.nn.attention.varlen")


def _lacking() -> str | None:
    try:
        has = inspect.signature(_varlen().varlen_attn).parameters
    except (ImportError, AttributeError):
        has = {}
    lacks = sorted(_NEEDED - set(has))
    if not lacks:
        return None
    return f"varlen_attn of torch {torch.__version__} lacks {', '.join(lacks)}"


def _difference(shape: KvShape, heads: int) -> str | None:
    """Texts of less than a page, of one and of more, as a decode step and as a slice."""
    generator = torch.Generator().manual_seed(0)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator).to(shape.device, shape.dtype)

    k_PSKD, v_PSKD = (normal(4, PAGE, shape.kv_heads, shape.head_dim) for _ in range(2))
    tables, lengths = ([2], [0], [3, 1]), (5, PAGE, PAGE + 44)
    for pages, length in zip(tables, lengths, strict=True):
        for pool_PSKD in (k_PSKD, v_PSKD):
            pool_PSKD[pages[-1], (length - 1) % PAGE + 1 :] = 100.0  # nobody may read it
    for news in ((1, 1, 1), (5, 1, 70)):
        spans = [
            Span(pages, length - new, length, length)
            for pages, length, new in zip(tables, lengths, news, strict=True)
        ]
        queries = Queries.of(spans, PAGE, shape.device)
        q_THD = normal(sum(news), heads, shape.head_dim)
        scale = shape.head_dim**-0.5
        try:
            found = kernel_attention(q_THD, k_PSKD, v_PSKD, queries, scale).float()
        except Exception as error:  # whatever it is, the other way of computing is right
            return f"the kernel does not run here: {type(error).__name__}: {error}"
        expected = gathered_attention(q_THD, k_PSKD, v_PSKD, queries, scale).float()
        gap = (found - expected).abs().max().item()
        if not gap < _TOLERANCE:  # also nan
            return f"the kernel is off by {gap:.3g} here"
    return None
