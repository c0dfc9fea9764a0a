import numpy as np
import pytest
import torch
from tests.torch_engine.conftest import Tiny, random_adapter, random_tokens
from tests.torch_engine.sampling.harness import (
    NO_STOP,
    decoding_of,
    reference_logits,
    request,
    sample_all,
    sample_one,
)

from mint.core.sampling import UNSCORED
from mint.torch_engine import prompt_scores


@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.0])
def test_prompt_logprobs_are_the_models_and_the_first_is_unknown(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, temperature: float
):
    monkeypatch.setattr(prompt_scores, "LOGITS_AT_ONCE", 3 * 259)  # three rows at a time
    adapter = random_adapter(tiny.decoder)
    prompt = random_tokens(np.random.default_rng(1), 20)[0]

    result = sample_one(
        tiny,
        request(
            prompt,
            max_tokens=1,
            prompt_logprobs=True,
            topk_prompt_logprobs=4,
            temperature=temperature,
        ),
        adapter,
    )

    logp_TV = (reference_logits(tiny, prompt.tolist(), adapter) / (temperature or 1)).log_softmax(
        -1
    )
    expected = logp_TV[:-1].gather(1, torch.tensor(prompt[1:].astype(np.int64))[:, None])[:, 0]
    assert result.prompt_logprobs is not None
    assert result.prompt_logprobs.dtype == np.float32
    assert np.isnan(result.prompt_logprobs[0])
    np.testing.assert_allclose(result.prompt_logprobs[1:], expected.numpy(), atol=1e-4)
    best = logp_TV[:-1].topk(4)
    assert result.topk_prompt_logprobs is not None
    assert result.topk_prompt_logprobs.token_ids[0].tolist() == [0] * 4
    assert result.topk_prompt_logprobs.logprobs[0].tolist() == [UNSCORED] * 4
    assert result.topk_prompt_logprobs.token_ids[1:].tolist() == best.indices.tolist()
    np.testing.assert_allclose(
        result.topk_prompt_logprobs.logprobs[1:], best.values.numpy(), atol=1e-4
    )


def test_scores_come_only_to_those_who_asked(tiny: Tiny):
    prompt = random_tokens(np.random.default_rng(2), 10)[0]
    found = sample_all(
        decoding_of(tiny),
        {
            "plain": (request(prompt, max_tokens=2), None),
            "scored": (request(prompt, max_tokens=2, prompt_logprobs=True), None),
            "best": (request(prompt, max_tokens=2, topk_prompt_logprobs=2), None),
        },
    )

    assert found["plain"].prompt_logprobs is None
    assert found["plain"].topk_prompt_logprobs is None
    assert found["scored"].prompt_logprobs is not None
    assert found["scored"].topk_prompt_logprobs is None
    assert found["best"].prompt_logprobs is None
    assert found["best"].topk_prompt_logprobs is not None


def test_a_prompt_of_one_token_has_nothing_to_score(tiny: Tiny):
    result = sample_one(
        tiny, request([5], max_tokens=1, prompt_logprobs=True, topk_prompt_logprobs=3)
    )

    assert result.prompt_logprobs is not None
    assert np.isnan(result.prompt_logprobs).tolist() == [True]
    assert result.topk_prompt_logprobs is not None
    assert result.topk_prompt_logprobs.logprobs.tolist() == [[UNSCORED] * 3]


def test_the_best_tokens_at_each_sampled_position_are_those_of_the_model(tiny: Tiny):
    prompt = random_tokens(np.random.default_rng(3), 9)[0]
    found = sample_all(
        decoding_of(tiny),
        {
            "three": (
                request(prompt, max_tokens=8, seed=1, stop=NO_STOP, topk_sample_logprobs=3),
                None,
            ),
            "five": (
                request(prompt, max_tokens=8, seed=2, stop=NO_STOP, topk_sample_logprobs=5),
                None,
            ),
            "none": (request(prompt, max_tokens=8), None),
        },
    )

    for name, k in (("three", 3), ("five", 5)):
        (sequence,) = found[name].sequences
        logits_TV = reference_logits(tiny, [*prompt.tolist(), *sequence.tokens.tolist()], None)
        best = logits_TV.log_softmax(-1)[len(prompt) - 1 : -1].topk(k)
        assert sequence.topk is not None
        assert sequence.topk.token_ids.tolist() == best.indices.tolist()
        np.testing.assert_allclose(sequence.topk.logprobs, best.values.numpy(), atol=1e-4)
    assert found["none"].sequences[0].topk is None
