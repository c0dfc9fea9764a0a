"""The call of torch's CUDA kernel, by a stand-in that is as strict; and the kernel, where it is."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.torch_engine.conftest import Tiny, random_adapter, random_tokens
from tests.torch_engine.sampling.harness import NO_STOP, decoding_of, request, sample_all
from tests.torch_engine.sampling.paged_kernel_stand_in import StandIn, accepted_by_torch
from torch import Tensor

from mint.torch_engine import attention, kv_layouts, paged_kernel
from mint.torch_engine.decoder import Decoder
from mint.torch_engine.kv_store import KvShape
from mint.torch_engine.models.files import ModelFiles
from mint.torch_engine.models.loader import load_module
from mint.torch_engine.paged_attention import Queries, Span, gathered_attention
from mint.torch_engine.paged_kernel import PAGE, kernel_attention, refusal
from mint.torch_engine.paged_store import PagedStore

CUDA = (
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
)
SHAPE = KvShape(layers=1, kv_heads=2, head_dim=16, dtype=torch.bfloat16, device=torch.device("cpu"))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn()
    monkeypatch.setattr(paged_kernel, "_varlen", lambda: stand_in)
    return stand_in


def half(tiny: Tiny) -> Tiny:
    """The same model in bfloat16."""
    files = ModelFiles("tiny", tiny.folder, "folder")
    module = load_module(files, dtype="bfloat16", device="cpu", attention=attention.ATTENTION)
    return Tiny(tiny.folder, Decoder(module), tiny.plain)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 3e-5), ("bfloat16", 0.3)])
def test_a_sampling_run_asks_the_kernel_for_what_it_takes_and_draws_the_same(
    tiny: Tiny, kernel: StandIn, monkeypatch: pytest.MonkeyPatch, dtype: str, tolerance: float
):
    """Slices and steps, prompts of less than a page and of more, shared and known."""
    if dtype == "bfloat16":
        tiny = half(tiny)
    else:
        kernel.dtypes.append(torch.float32)
    rng = np.random.default_rng(1)
    trunk, *tails = random_tokens(rng, 260, 3, 9, 20)
    adapter = random_adapter(tiny.decoder)
    requests = {
        str(n): (
            request(text, num_samples=2, seed=n, max_tokens=5, temperature=0.7, stop=NO_STOP),
            adapter if n % 2 else None,
        )
        for n, text in enumerate([*tails, *(np.concatenate([trunk, tail]) for tail in tails)])
    }
    settings: dict[str, Any] = {"kv_tokens": 8 * PAGE, "prefill_tokens": 100, "kv_layout": "paged"}
    gathered = sample_all(decoding_of(tiny, **settings), requests)
    assert not kernel.calls
    monkeypatch.setattr(kv_layouts, "refusal", lambda *_: None)

    decoding = decoding_of(tiny, **settings)
    assert isinstance(decoding._kv, PagedStore)
    found = sample_all(decoding, requests)

    assert {most_q > 1 for most_q, _ in kernel.calls} == {True, False}
    assert max(texts for _, texts in kernel.calls) > 2
    for name, result in gathered.items():
        for a, b in zip(found[name].sequences, result.sequences, strict=True):
            n = int(np.argmin(np.append(a.tokens == b.tokens, False)))  # as long as they agree
            assert n == len(a.tokens) or dtype == "bfloat16"
            np.testing.assert_allclose(a.logprobs[:n], b.logprobs[:n], atol=tolerance)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=CUDA)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("heads", "kv_heads", "width"), [(4, 4, 16), (9, 3, 64), (8, 1, 128)])
@pytest.mark.parametrize("news", [(1, 1, 1, 1), (1, 5, 30, 2)], ids=["step", "slice"])
def test_the_kernel_gives_what_gathering_gives(
    request: pytest.FixtureRequest,
    device: str,
    dtype: torch.dtype,
    heads: int,
    kv_heads: int,
    width: int,
    news: tuple[int, ...],
):
    if device == "cpu":
        request.getfixturevalue("kernel")
    generator = torch.Generator().manual_seed(0)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator).to(device, dtype)

    k_PSKD, v_PSKD = (normal(6, PAGE, kv_heads, width) for _ in range(2))
    # of which two share a page, with positions in the middle, at the end and at the start of one
    tables, lengths = ([3], [5, 0], [5, 1], [5, 2, 4]), (40, 300, PAGE * 2, PAGE * 2 + 1)
    spans = [
        Span(pages, length - new, length, 0)
        for pages, length, new in zip(tables, lengths, news, strict=True)
    ]
    queries = Queries.of(spans, PAGE, k_PSKD.device)
    q_THD = normal(sum(news), heads, width)

    found = kernel_attention(q_THD, k_PSKD, v_PSKD, queries, width**-0.5)

    expected = gathered_attention(
        q_THD.float(), k_PSKD.float(), v_PSKD.float(), queries, width**-0.5
    )
    torch.testing.assert_close(found.float(), expected, atol=0.02, rtol=0.02)


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ({}, "the device is cpu"),
        ({"device": torch.device("mps")}, "the device is mps"),
        ({"device": torch.device("cuda"), "dtype": torch.float32}, "the dtype is torch.float32"),
        ({"device": torch.device("cuda"), "head_dim": 12}, "are 12 wide"),
        ({"device": torch.device("cuda"), "head_dim": 264}, "are 264 wide"),
    ],
)
def test_where_the_kernel_cannot_serve_the_reason_is_told(shape: dict[str, Any], why: str):
    fields = {name: getattr(SHAPE, name) for name in SHAPE.__dataclass_fields__}

    assert why in (refusal(KvShape(**{**fields, **shape}), heads=4) or "")


def test_a_torch_whose_kernel_knows_no_block_tables_is_told_by_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
):
    old = SimpleNamespace(varlen_attn=lambda query, key, value, *, enable_gqa: None)
    monkeypatch.setattr(paged_kernel, "_varlen", lambda: old)

    told = paged_kernel._lacking()

    assert told
    assert "lacks block_table, num_splits, seqused_k" in told


def without_causality(call: Any) -> Any:
    return lambda *args, **named: call(*args, **{**named, "window_size": (-1, -1)})


def unwritten_rows(call: Any) -> Any:
    """As torch 2.13's does when it splits along the keys."""

    def called(*args: Any, **named: Any) -> Tensor:
        out = call(*args, **named)
        out[1:] = float("nan")
        return out

    return called


def beyond_the_end(call: Any) -> Any:
    """Reads what a page holds behind the text."""

    def called(*args: Any, **named: Any) -> Tensor:
        return call(*args, **{**named, "seqused_k": named["seqused_k"] + 1})

    return called


def of_no_such_device(call: Any) -> Any:
    def called(*_: Any, **__: Any) -> Tensor:
        raise RuntimeError("FlashAttention only supports Ampere GPUs or newer.")

    return called


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (without_causality, "off by"),
        (unwritten_rows, "off by nan"),
        (beyond_the_end, "off by"),
        (of_no_such_device, "does not run here: RuntimeError: FlashAttention only supports Ampere"),
    ],
)
def test_a_kernel_that_is_wrong_here_is_found_out_before_it_serves(
    kernel: StandIn, broken: Any, told: str
):
    assert paged_kernel._difference(SHAPE, heads=4) is None

    kernel.lenient = True
    kernel.varlen_attn = broken(kernel.varlen_attn)

    assert told in (paged_kernel._difference(SHAPE, heads=4) or "")


def test_the_stand_in_refuses_what_torch_refuses(kernel: StandIn):
    q, pool = (
        torch.zeros(1, 4, 16, dtype=torch.bfloat16),
        torch.zeros(1, PAGE, 3, 16, dtype=torch.bfloat16),
    )
    queries = Queries.of([Span([0], 0, 1, 0)], PAGE, q.device)

    with pytest.raises(ValueError, match="multiple of kv heads"):
        kernel_attention(q, pool, pool, queries, 1.0)
    with pytest.raises(TypeError):
        accepted_by_torch(q, pool, pool, page_table=None)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_kernel_serves_on_this_device(dtype: torch.dtype):
    device = torch.device("cuda")
    shape = KvShape(layers=1, kv_heads=3, head_dim=64, dtype=dtype, device=device)

    assert refusal(shape, heads=9) is None
