"""Which layout is chosen, and that requests cannot tell."""

import logging

import numpy as np
import pytest
import torch
from tests.torch_engine.conftest import Tiny, random_adapter, random_tokens
from tests.torch_engine.sampling.harness import NO_STOP, decoding_of, finish, request

from mint.core.errors import ConfigError
from mint.core.ids import OperationId
from mint.core.operations import SampleResult
from mint.torch_engine import kv_layouts
from mint.torch_engine.contiguous_store import ContiguousStore
from mint.torch_engine.kv_layouts import open_store
from mint.torch_engine.kv_store import KvShape
from mint.torch_engine.paged_attention import gathered_attention
from mint.torch_engine.paged_kernel import PAGE
from mint.torch_engine.paged_store import PagedStore

ON_CUDA = KvShape(
    layers=0, kv_heads=1, head_dim=8, dtype=torch.bfloat16, device=torch.device("cuda")
)


def results(tiny: Tiny, **settings: object) -> dict[str, SampleResult]:
    """Requests with adapters, scores, common beginnings; little room, so that some are set back."""
    rng = np.random.default_rng(1)
    trunk, *tails = random_tokens(rng, 40, 5, 17, 30, 2, 60)
    weights = [None, random_adapter(tiny.decoder).pinned()]
    decoding = decoding_of(tiny, prefill_tokens=50, **settings)
    ended = {}
    for n, tail in enumerate(tails):
        sample = request(
            np.concatenate([trunk[: 10 * n], tail]), num_samples=3, seed=n, max_tokens=30,
            stop=NO_STOP, prompt_logprobs=n == 3, topk_sample_logprobs=2,
        )  # fmt: skip
        decoding.add(OperationId(str(n)), sample, weights[n % 2])
        ended |= {o.operation_id: o.result for o in decoding.round()}
    ended |= finish(decoding)
    assert all(isinstance(result, SampleResult) for result in ended.values())
    return ended


@pytest.mark.parametrize("page", [16, 64, 256])
def test_requests_get_the_same_in_pages_of_any_size(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, page: int
):
    monkeypatch.setattr(kv_layouts, "GATHERED_PAGE", page)

    expected = results(tiny, kv_layout="contiguous", kv_tokens=400)
    found = results(tiny, kv_layout="paged", kv_tokens=max(400, 5 * page))

    for name, result in expected.items():
        for a, b in zip(found[name].sequences, result.sequences, strict=True):
            assert a.tokens.tolist() == b.tokens.tolist()
            np.testing.assert_allclose(a.logprobs, b.logprobs, atol=3e-5)
            assert a.topk
            assert b.topk
            np.testing.assert_allclose(a.topk.logprobs, b.topk.logprobs, atol=3e-5)
        if result.prompt_logprobs is not None:
            scores = found[name].prompt_logprobs
            assert scores is not None
            np.testing.assert_allclose(scores, result.prompt_logprobs, atol=3e-5)


def test_a_cpu_has_texts_in_one_piece_and_says_nothing_of_it(
    tiny: Tiny, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.INFO):
        decoding = decoding_of(tiny, kv_layout="auto")

    assert isinstance(decoding._kv, ContiguousStore)
    assert not caplog.records


def test_pages_without_a_kernel_are_slow_and_the_log_says_why(
    tiny: Tiny, caplog: pytest.LogCaptureFixture
):
    decoding = decoding_of(tiny, kv_layout="paged")

    assert isinstance(decoding._kv, PagedStore)
    assert "which is slow: the kernel is for CUDA, and the device is cpu" in caplog.text


@pytest.mark.parametrize("refused", [None, "the kernel is off by nan here"])
def test_cuda_has_pages_if_the_kernel_can_serve_and_the_log_says_why_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refused: str | None
):
    monkeypatch.setattr(kv_layouts, "refusal", lambda shape, heads: refused)

    store = open_store("auto", ON_CUDA, 1, 10 * PAGE)

    if refused is None:
        assert isinstance(store, PagedStore)
        assert store.tokens - store.longest == PAGE
        assert store._attend is not gathered_attention
    else:
        assert isinstance(store, ContiguousStore)
        assert refused in caplog.text


def test_a_layout_nobody_knows_is_refused_with_those_there_are(tiny: Tiny):
    with pytest.raises(ConfigError, match="kv_layout='pages': give one of auto, contiguous, paged"):
        decoding_of(tiny, kv_layout="pages")
