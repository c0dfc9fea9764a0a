"""Which distribution a logprob is of, on the sampler's side and on the trainer's."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.torch_engine.test_engine import (
    PROMPT,
    Bench,
    datum,
    learn,
    make_engine,
    passes,
    policy_datum,
    sample,
)

from mint.core.ids import ModelId, SamplerId
from mint.core.model_input import ModelInput
from mint.core.operations import PassResult, PinSampler, SampleResult
from mint.torch_engine.models.tiny import build_tiny

MODEL, SAMPLER = ModelId("m"), SamplerId("s")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """An engine with a model that has learnt, and a sampler of its weights."""
    scratch: Path = tmp_path_factory.mktemp("temperature")
    made = Bench(make_engine(build_tiny(scratch / "tiny"), scratch / "engine"))
    made.create(MODEL)
    made.train(MODEL, steps=3)
    made.run(PinSampler(model_id=MODEL, sampler_id=SAMPLER))
    return made


def scored(bench: Bench, drawn: SampleResult, config: dict[str, float]) -> np.ndarray:
    """The trainer's logprobs of the drawn tokens."""
    data = tuple(policy_datum(sequence) for sequence in drawn.sequences)
    result = bench.run(passes(MODEL, data, forward_only=True, loss_fn_config=config))
    assert isinstance(result, PassResult), result
    return np.concatenate([logp[len(PROMPT) - 1 :] for logp in result.logprobs])


def sampled(drawn: SampleResult) -> np.ndarray:
    return np.concatenate([sequence.logprobs for sequence in drawn.sequences])


@pytest.mark.parametrize("cut", [{}, {"top_k": 5}, {"top_p": 0.5}, {"top_k": 9, "top_p": 0.7}])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_what_was_cut_before_drawing_does_not_change_the_logprob(bench, temperature, cut):
    drawn = bench.sample(
        SAMPLER, num_samples=4, params={"temperature": temperature, "max_tokens": 20, **cut}
    )
    ours = scored(bench, drawn, {"temperature": temperature})
    np.testing.assert_allclose(ours, sampled(drawn), atol=1e-4, rtol=0)


def test_without_the_key_a_pass_scores_at_temperature_1_and_a_ratio_is_off(bench):
    drawn = bench.sample(SAMPLER, num_samples=4, params={"temperature": 0.6, "max_tokens": 20})

    unsaid, said = scored(bench, drawn, {}), scored(bench, drawn, {"temperature": 1.0})

    np.testing.assert_array_equal(unsaid, said)
    assert np.abs(unsaid - sampled(drawn)).mean() > 0.1
    np.testing.assert_allclose(
        scored(bench, drawn, {"temperature": 0.6}), sampled(drawn), atol=1e-4, rtol=0
    )


def test_tokens_drawn_at_temperature_0_have_logprobs_of_temperature_1(bench):
    drawn = bench.sample(SAMPLER, params={"temperature": 0.0, "max_tokens": 20})
    np.testing.assert_allclose(scored(bench, drawn, {}), sampled(drawn), atol=1e-4, rtol=0)
    assert (sampled(drawn) < -1e-3).any()  # and are not the 0 of a sure choice
    assert learn(bench, MODEL, drawn.sequences)["parity/tokens:sum"] == 20


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_a_prompt_is_scored_as_the_trainer_scores_it(bench, temperature):
    text = datum()
    whole = np.append(text.model_input.tokens(), text.loss_fn_inputs["target_tokens"][-1])
    asked = sample(SAMPLER, prompt_logprobs=True, params={"temperature": temperature})
    found = bench.run(replace(asked, prompt=ModelInput.from_ints(whole)))
    config = {"temperature": temperature}
    result = bench.run(passes(MODEL, (text,), forward_only=True, loss_fn_config=config))

    np.testing.assert_allclose(found.prompt_logprobs[1:], result.logprobs[0], atol=1e-4, rtol=0)
