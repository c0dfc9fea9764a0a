"""What bfloat16 costs: the same adapter on one model, in float32 and with bfloat16 base weights.

A tiny random model is a harsh case, as its logits are as good as noise. Bounds are about three
times what was found, since kernels of other processors round otherwise.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.torch_engine.test_engine import PROMPT, Bench, make_engine, passes

from mint.core.datum import Datum
from mint.core.ids import ModelId, SamplerId
from mint.core.model_input import ModelInput
from mint.core.operations import PassResult, PinSampler, SampleResult
from mint.torch_engine.models.tiny import build_tiny

MODEL, SAMPLER = ModelId("m"), SamplerId("s")


@dataclass(frozen=True)
class Pair:
    """Two engines with one adapter, and what the bfloat16 one has drawn."""

    exact: Bench
    coarse: Bench
    drawn: SampleResult
    data: tuple[Datum, ...]

    def logprobs(self, bench: Bench) -> list[np.ndarray]:
        """The trainer's, of the drawn tokens."""
        passed = bench.run(passes(MODEL, self.data, forward_only=True))
        assert isinstance(passed, PassResult), passed
        return [logp[len(PROMPT) - 1 :] for logp in passed.logprobs]

    def gradient(self, bench: Bench) -> torch.Tensor:
        adapter = bench.engine._models[MODEL].adapter
        adapter.clear_grad()
        bench.run(passes(MODEL, self.data))
        return adapter.flat_grad.double()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    scratch: Path = tmp_path_factory.mktemp("bfloat16")
    folder = build_tiny(scratch / "tiny")
    exact, coarse = (
        Bench(make_engine(folder, scratch / dtype, dtype=dtype))
        for dtype in ("float32", "bfloat16")
    )
    for bench in (exact, coarse):
        bench.create(MODEL)
    exact.train(MODEL, steps=3)
    learnt = exact.engine._models[MODEL].adapter.flat.detach()
    coarse.engine._models[MODEL].adapter.flat.data.copy_(learnt)
    coarse.run(PinSampler(model_id=MODEL, sampler_id=SAMPLER))
    drawn = coarse.sample(SAMPLER, num_samples=16, params={"max_tokens": 40})
    data = tuple(weighed(s.tokens, (-1.0) ** n) for n, s in enumerate(drawn.sequences))
    return Pair(exact, coarse, drawn, data)


def weighed(tokens: np.ndarray, weight: float) -> Datum:
    """A sampled sequence whose tokens count `weight`, its prompt nothing."""
    whole = np.concatenate([PROMPT, tokens])
    weights = np.full(len(whole) - 1, weight, np.float32)
    weights[: len(PROMPT) - 1] = 0
    inputs = {"target_tokens": whole[1:].astype(np.int64), "weights": weights}
    return Datum(ModelInput.from_ints(whole[:-1]), inputs)


def gap(one: list[np.ndarray], other: list[np.ndarray]) -> tuple[float, float]:
    """(mean, largest) |difference|, nats."""
    gaps = np.abs(np.concatenate(one) - np.concatenate(other))
    return float(gaps.mean()), float(gaps.max())


def test_sampler_and_trainer_are_a_fiftieth_of_a_nat_apart(pair: Pair):
    sampled = [sequence.logprobs for sequence in pair.drawn.sequences]
    mean, largest = gap(sampled, pair.logprobs(pair.coarse))
    assert 1e-3 < mean <= 0.06  # less, and it was no bfloat16
    assert largest <= 0.9


def test_logprobs_are_as_far_from_those_of_float32(pair: Pair):
    mean, largest = gap(pair.logprobs(pair.exact), pair.logprobs(pair.coarse))
    assert 1e-3 < mean <= 0.1
    assert largest <= 0.9


def test_a_policy_gradient_keeps_its_direction_and_is_off_by_a_tenth(pair: Pair):
    exact, coarse = pair.gradient(pair.exact), pair.gradient(pair.coarse)
    assert 1e-3 < (coarse - exact).norm() / exact.norm() <= 0.25
    assert torch.cosine_similarity(coarse, exact, dim=0) >= 0.97


def test_adapters_gradients_moments_and_logprobs_stay_float32(pair: Pair):
    model = pair.coarse.engine._models[MODEL]
    assert model.base.decoder.dtype == torch.bfloat16
    state = (model.adapter.flat, model.adapter.flat_grad, model.optimizer.exp_avg)
    assert {x.dtype for x in (*state, model.optimizer.exp_avg_sq)} == {torch.float32}
    sampled = [sequence.logprobs for sequence in pair.drawn.sequences]
    assert {x.dtype for x in (*sampled, *pair.logprobs(pair.coarse))} == {np.dtype(np.float32)}


def test_logits_are_rounded_to_bfloat16_before_the_softmax_is_taken_in_float32(pair: Pair):
    """What a head without an adapter gives: one of 256 steps between powers of 2."""
    decoder = pair.coarse.engine._models[MODEL].base.decoder
    hidden_NE = torch.randn(5, decoder.width, generator=torch.Generator().manual_seed(0)).bfloat16()
    logits_NV = decoder.logits(hidden_NE, [(None, 5)])
    assert logits_NV.dtype == torch.float32
    assert torch.equal(logits_NV, logits_NV.bfloat16().float())
