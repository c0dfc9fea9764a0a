"""The KL penalty, worked out by hand."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recipe.rl.episodes import episode, turn

from mint import ModelInput, types
from mint.recipe.exceptions import DataValidationError
from mint.recipe.rl.data_processing import array_of, trajectory_to_data
from mint.recipe.rl.kl import (
    TokenUsage,
    compute_post_kl,
    discounted_future_sum_vectorized,
    discounted_sum,
    incorporate_kl_penalty,
    kl_advantages,
)


class Scorer:
    """A sampling client that gives each token the logprob -token/10."""

    def __init__(self, wrong: bool = False) -> None:
        self.asked: list[tuple[ModelInput, float]] = []
        self._wrong = wrong

    def compute_logprobs(self, prompt: ModelInput) -> list[float | None]:
        return self._answer(prompt, 1.0)

    def sample(self, *, prompt, num_samples, sampling_params, include_prompt_logprobs):
        scored = self._answer(prompt, sampling_params.temperature)
        return types.SampleResponse(sequences=[], _prompt_logprobs_list=scored)

    def _answer(self, prompt: ModelInput, temperature: float) -> list[float | None]:
        self.asked.append((prompt, temperature))
        scored: list[float | None] = [None, *(-token / 10 for token in prompt.to_ints()[1:])]
        return scored[:-1] if self._wrong else scored


def three_tokens() -> list[types.Datum]:
    # prompt 1, sampled 2 3, shown 4, sampled 5: targets 2 3 4 5, mask 1 1 0 1
    played = episode(
        turn([1], [2, 3], logprobs=[-0.1, -0.5]), turn([1, 2, 3, 4], [5], logprobs=[-0.8])
    )
    return trajectory_to_data(played, 1.0)


def penalized(data: list[types.Datum], coef: float, gamma: float, **told):
    metrics, usage = asyncio.run(incorporate_kl_penalty(data, Scorer(), coef, gamma, **told))
    return [array_of(datum, "advantages").tolist() for datum in data], metrics, usage


def test_a_penalty_moves_credit_from_tokens_that_left_the_reference_to_those_that_stayed():
    # b = -0.2 -0.3 . -0.5; d = 0.1 -0.2 0 -0.3, dbar = -0.4/3
    [advantages], metrics, usage = penalized(three_tokens(), coef=0.3, gamma=0.0)

    k = [0.3 * (-0.4 / 3 - d) for d in (0.1, -0.2, -0.3)]
    assert advantages == pytest.approx([1 + k[0], 1 + k[1], 0, 1 + k[2]])
    assert sum(k) == pytest.approx(0)
    assert metrics == {"kl_policy_base": pytest.approx(-0.4 / 3)}
    assert usage == TokenUsage(prefill_uncached=5)


def test_with_a_discount_earlier_tokens_answer_for_later_ones_and_so_does_the_prompt():
    # k = -0.07 0.02 0 0.05 without; then y_t = k_t + y_(t+1) / 2
    [advantages], _, _ = penalized(three_tokens(), coef=0.3, gamma=0.5)

    y = [-0.07 + 0.5 * 0.0325, 0.02 + 0.5 * 0.025, 0.0 + 0.5 * 0.05, 0.05]
    assert y == pytest.approx([-0.05375, 0.0325, 0.025, 0.05])
    assert advantages == pytest.approx([1 + y[0], 1 + y[1], y[2], 1 + y[3]], abs=1e-6)


def test_the_distance_is_centred_over_the_whole_minibatch():
    one = trajectory_to_data(episode(turn([1], [2], logprobs=[-0.2])), 0.0)  # d = 0
    two = trajectory_to_data(episode(turn([1], [4], logprobs=[-0.2])), 0.0)  # d = 0.2

    advantages, metrics, _ = penalized(one + two, coef=1.0, gamma=0.0)

    assert advantages == [[pytest.approx(0.1)], [pytest.approx(-0.1)]]
    assert metrics["kl_policy_base"] == pytest.approx(0.1)


@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_where_nothing_was_sampled_advantages_stay_as_they_are(gamma):
    masked = trajectory_to_data(episode(turn([1], [2, 3], parse_error_masked=1.0)), 1.0)

    advantages, metrics, _ = penalized(masked, coef=1.0, gamma=gamma)

    assert advantages == [[0.0, 0.0]]
    assert metrics == {"kl_policy_base": 0.0}
    assert penalized([], coef=1.0, gamma=gamma)[1] == {"kl_policy_base": 0.0}


def test_the_reference_is_scored_on_the_whole_sequence_at_the_temperature_of_sampling():
    scorer = Scorer()

    for temperature in (1.0, 0.7):
        asyncio.run(
            incorporate_kl_penalty(three_tokens(), scorer, 0.1, 0.0, temperature=temperature)
        )

    assert [(prompt.to_ints(), t) for prompt, t in scorer.asked] == [
        ([1, 2, 3, 4, 5], 1.0),
        ([1, 2, 3, 4, 5], 0.7),
    ]
    assert all(len(prompt.chunks) == 1 for prompt, _ in scorer.asked)


def test_after_the_update_the_policy_has_moved_by():
    metrics, usage = asyncio.run(compute_post_kl(three_tokens(), Scorer()))

    # s - p = 0.1 -0.2 -0.3
    assert metrics == {
        "kl_pre_post_v1": pytest.approx(-0.4 / 3),
        "kl_pre_post_v2": pytest.approx(0.5 * (0.01 + 0.04 + 0.09) / 3),
    }
    assert usage == TokenUsage(prefill_uncached=5)


def test_a_reference_that_skips_a_token_is_refused():
    with pytest.raises(DataValidationError, match=r"datum 0 has 5 tokens, but .* gave 4"):
        asyncio.run(incorporate_kl_penalty(three_tokens(), Scorer(wrong=True), 0.1, 0.0))


def test_a_sampled_token_that_the_reference_cannot_produce_is_refused():
    class Surprised(Scorer):
        def compute_logprobs(self, prompt: ModelInput) -> list[float | None]:
            return [None, -0.1, float("-inf"), None, -0.1]

    with pytest.raises(DataValidationError, match=r"gives the logprob -inf .* at position 2"):
        asyncio.run(incorporate_kl_penalty(three_tokens(), Surprised(), 0.1, 0.0))


def test_a_failure_of_the_reference_surfaces_as_itself():
    class Unreachable(Scorer):
        def compute_logprobs(self, prompt: ModelInput) -> list[float | None]:
            raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        asyncio.run(incorporate_kl_penalty(three_tokens() * 3, Unreachable(), 0.1, 0.0))


def test_a_discounted_sum_by_hand():
    assert discounted_sum([1.0, 2.0, 4.0], 0.5).tolist() == [3.0, 4.0, 4.0]
    assert discounted_sum([1.0, 2.0, 4.0], 0.0).tolist() == [1.0, 2.0, 4.0]
    assert discounted_sum([1.0, 2.0, 4.0], 1.0).tolist() == [7.0, 6.0, 4.0]
    assert discounted_sum([], 0.5).tolist() == []


@given(
    st.lists(st.floats(-10, 10), max_size=70),
    st.floats(0, 1, allow_subnormal=False),
)
def test_a_discounted_sum_is_the_recursion_from_the_end(x, gamma):
    expected = [0.0]
    for value in reversed(x):
        expected.append(value + gamma * expected[-1])

    np.testing.assert_allclose(discounted_sum(x, gamma), expected[:0:-1], atol=1e-9)


def test_the_public_door_gives_a_tensor():
    summed = discounted_future_sum_vectorized(np.array([1.0, 2.0, 4.0]), 0.5)

    assert str(summed.dtype) == "torch.float32"
    assert summed.tolist() == [3.0, 4.0, 4.0]


token = st.tuples(st.floats(-5, 0), st.floats(-5, 0), st.booleans())


@given(st.lists(st.lists(token, min_size=1, max_size=6), max_size=4), st.floats(0, 2))
def test_without_a_discount_a_penalty_sums_to_zero(tokens, coef):
    data = [
        types.Datum(
            model_input=ModelInput.from_ints([0] * len(one)),
            loss_fn_inputs={
                "logprobs": types.TensorData.from_numpy(np.array([s for s, _, _ in one])),
                "mask": types.TensorData.from_numpy(np.array([float(m) for _, _, m in one])),
            },
        )
        for one in tokens
    ]

    added, _ = kl_advantages(data, [[b for _, b, _ in one] for one in tokens], coef)

    assert sum(float(one.sum()) for one in added) == pytest.approx(0, abs=1e-9)
    assert all(k == 0 for one, ks in zip(tokens, added, strict=True)
               for (_, _, m), k in zip(one, ks, strict=True) if not m)  # fmt: skip
