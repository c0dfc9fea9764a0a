import numpy as np
import pytest
import torch
from tests.torch_engine.conftest import Tiny, random_adapter, random_tokens
from tests.torch_engine.sampling.harness import (
    NO_STOP,
    decoding_of,
    failure_of,
    reference_logits,
    request,
    sample_all,
    sample_one,
)

from mint.core.errors import Fault
from mint.core.sampling import UNSCORED, Cells
from mint.torch_engine import prompt_scores

pytestmark = pytest.mark.usefixtures("layout")


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


def logprobs_of(tiny: Tiny, prompt: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """`[n - 1, V]`: the distribution in place of each prompt token but the first."""
    logits_TV = reference_logits(tiny, prompt.tolist(), None)
    return (logits_TV / temperature).log_softmax(-1)[:-1].numpy()


def test_only_the_last_tokens_are_scored_where_only_they_are_asked_for(tiny: Tiny):
    prompt = random_tokens(np.random.default_rng(4), 12)[0]
    asked = {"max_tokens": 1, "prompt_logprobs": True, "topk_prompt_logprobs": 2}

    whole = sample_one(tiny, request(prompt, **asked))
    last = sample_one(tiny, request(prompt, prompt_logprobs_last_n=3, **asked))

    assert whole.prompt_logprobs is not None
    assert last.prompt_logprobs is not None
    assert np.isnan(last.prompt_logprobs).tolist() == [True] * 9 + [False] * 3
    np.testing.assert_allclose(last.prompt_logprobs[9:], whole.prompt_logprobs[9:], atol=1e-5)
    assert whole.topk_prompt_logprobs is not None
    assert last.topk_prompt_logprobs is not None
    assert (last.topk_prompt_logprobs.logprobs[:9] == UNSCORED).all()
    best = last.topk_prompt_logprobs.token_ids[9:]
    assert best.tolist() == whole.topk_prompt_logprobs.token_ids[9:].tolist()


def test_asked_ids_are_scored_at_their_positions(tiny: Tiny, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prompt_scores, "LOGITS_AT_ONCE", 3 * 259)  # three rows at a time
    prompt = random_tokens(np.random.default_rng(5), 11)[0]
    ids = np.random.default_rng(6).integers(0, 259, (10, 4)).astype(np.int32)
    ids[2, 1] = ids[9, 3] = -1
    expected = np.take_along_axis(logprobs_of(tiny, prompt, 0.5), ids.clip(0), axis=1)
    expected[ids < 0] = 0
    # The same cells, listed: two of row 0, one of row 7.
    crow = np.array([0, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3])
    sparse = Cells(np.array([7, 9, 8], "i4"), (10, 90), crow, np.array([5, 80, 0]))

    found = sample_all(
        decoding_of(tiny, prefill_tokens=4),
        {
            name: (request(prompt, max_tokens=1, temperature=0.5, prompt_targets=targets), None)
            for name, targets in (("dense", Cells(ids.reshape(-1), (10, 4))), ("sparse", sparse))
        },
    )

    dense = found["dense"].target_prompt_logprobs
    assert dense is not None
    assert dense.values.dtype == np.float32
    np.testing.assert_allclose(dense.values.reshape(10, 4), expected, atol=1e-4)
    listed = found["sparse"].target_prompt_logprobs
    assert listed is not None
    assert (listed.shape, listed.crow is crow) == ((10, 90), True)
    logp = logprobs_of(tiny, prompt, 0.5)
    assert listed.values == pytest.approx([logp[0, 7], logp[0, 9], logp[7, 8]], abs=1e-4)
    assert found["dense"].prompt_logprobs is None


def test_alternatives_are_drawn_from_the_models_distribution(tiny: Tiny):
    prompt = random_tokens(np.random.default_rng(7), 4)[0]
    k, temperature = 4000, 0.5
    asked = {"max_tokens": 1, "seed": 3, "temperature": temperature, "prompt_alt_tokens_k": k}

    drawn = sample_one(tiny, request(prompt, **asked)).prompt_alt_tokens
    again = sample_one(tiny, request(prompt, **asked)).prompt_alt_tokens
    other = sample_one(tiny, request(prompt, **{**asked, "seed": 4})).prompt_alt_tokens

    assert drawn is not None
    assert again is not None
    assert other is not None
    assert drawn.token_ids.shape == (3, k)
    logp = logprobs_of(tiny, prompt, temperature)
    np.testing.assert_allclose(
        drawn.logprobs, np.take_along_axis(logp, drawn.token_ids.astype(int), axis=1), atol=1e-4
    )
    for row in range(3):
        share = np.bincount(drawn.token_ids[row], minlength=259) / k
        # 4 standard deviations of a share near its largest value
        assert np.abs(share - np.exp(logp[row])).max() < 4 * np.sqrt(0.25 / k)
    assert (again.token_ids == drawn.token_ids).all()
    assert (other.token_ids != drawn.token_ids).any()


def test_greedy_alternatives_are_the_most_likely_tokens(tiny: Tiny):
    prompt = random_tokens(np.random.default_rng(8), 6)[0]

    drawn = sample_one(
        tiny, request(prompt, max_tokens=1, temperature=0.0, prompt_alt_tokens_k=2)
    ).prompt_alt_tokens

    assert drawn is not None
    best = logprobs_of(tiny, prompt).argmax(-1)
    assert drawn.token_ids.tolist() == [[token, token] for token in best]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"prompt_logprobs": True, "prompt_logprobs_last_n": 5}, "give 1 to 4"),
        ({"prompt_logprobs": True, "prompt_logprobs_last_n": 0}, "give 1 to 4"),
        ({"prompt_logprobs_last_n": 2}, "only with prompt_logprobs"),
        ({"prompt_targets": Cells(np.zeros(3, "i4"), (3, 1))}, "has 3 rows"),
        ({"prompt_targets": Cells(np.full(4, 259, "i4"), (4, 1))}, "run from 0 to 258"),
        ({"prompt_targets": Cells(np.full(4, -2, "i4"), (4, 1))}, "run from 0 to 258"),
        ({"prompt_alt_tokens_k": -1}, "prompt_alt_tokens_k=-1"),
    ],
)
def test_what_cannot_be_told_of_a_prompt_is_refused_by_name(tiny: Tiny, asked: dict, says: str):
    failure = failure_of(decoding_of(tiny), request([1, 2, 3, 4, 5], max_tokens=1, **asked))

    assert failure.fault is Fault.USER
    assert says in failure.message
