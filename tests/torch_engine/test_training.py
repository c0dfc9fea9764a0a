"""Losses and gradients of a training pass against float64, and its invariances."""

import numpy as np
import pytest
from tests.torch_engine import reference
from tests.torch_engine.conftest import random_adapter, random_tokens

from mint.core.datum import Datum
from mint.core.errors import LossInputError, UserError
from mint.core.ids import ModelId
from mint.core.losses import LOSSES
from mint.core.model_input import ModelInput
from mint.core.operations import ForwardBackward
from mint.torch_engine import logprobs
from mint.torch_engine.budget import Budget
from mint.torch_engine.shared_batch import run_batch
from mint.torch_engine.training import TrainingPass


def run_pass(tiny, adapter, data, name, config=None, *, budget=None, forward_only=False):
    operation = ForwardBackward(
        model_id=ModelId("m"), data=tuple(data), loss_fn=name, loss_fn_config=config or {},
        forward_only=forward_only,
    )  # fmt: skip
    adapter.clear_grad()
    return continue_pass(tiny, adapter, operation, budget)


def continue_pass(tiny, adapter, operation, budget=None):
    training = TrainingPass(tiny.decoder, adapter, operation)
    tokens = Budget(memory=10_000, batch=budget or 10_000)
    while not training.done:
        assert not run_batch(tiny.decoder, [training], tokens, lambda _: None)
    return training.result()


def gradients_agree(one, other):
    """Within float32's rounding of another order of summation."""
    return (one - other).norm() <= 1e-5 * other.norm() and other.norm() > 1e-3


def policy_data(tiny, adapter, seed=0):
    """RL groups with shared prompts; q near p, so ratios spread around 1; prompts have A = 0."""
    rng = np.random.default_rng(seed)
    data = []
    for prompt in random_tokens(rng, 7, 5):
        for rest in random_tokens(rng, 4, 6, 1):
            tokens = np.concatenate([prompt, rest])
            inputs, targets = tokens[:-1], tokens[1:].astype(np.int64)
            p = known_logprobs(tiny, adapter, inputs, targets)
            prompt_part = np.arange(len(targets)) < len(prompt) - 1
            q = np.where(prompt_part, 0.0, p + rng.normal(0, 0.4, len(p)))
            advantage = np.where(prompt_part, 0.0, rng.normal(0, 1, len(p)))
            data.append(
                Datum(
                    ModelInput.from_ints(inputs),
                    {
                        "target_tokens": targets,
                        "logprobs": q.astype(np.float32),
                        "advantages": advantage.astype(np.float32),
                    },
                )
            )
    return data


def known_logprobs(tiny, adapter, inputs, targets):
    model, _ = reference.with_lora(tiny.plain, adapter)
    datum = Datum(ModelInput.from_ints(inputs), {"target_tokens": targets})
    return reference.logprobs(model, datum, 1.0).detach().numpy()


def weighted_data(seed=0):
    rng = np.random.default_rng(seed)
    return [
        Datum(
            ModelInput.from_ints(tokens[:-1]),
            {
                "target_tokens": tokens[1:].astype(np.int64),
                "weights": rng.normal(0, 1, len(tokens) - 1).astype(np.float32),
            },
        )
        for tokens in random_tokens(rng, 9, 4, 12)
    ]


def soft_data(seed=0):
    rng = np.random.default_rng(seed)
    return [
        Datum(
            ModelInput.from_ints(tokens),
            {
                "target_tokens": rng.integers(0, 256, (len(tokens), k)).astype(np.int64),
                "weights": rng.dirichlet(np.ones(k), len(tokens)).astype(np.float32),
            },
        )
        for tokens, k in zip(random_tokens(rng, 6, 3, 8), (3, 1, 5), strict=True)
    ]


def data_for(tiny, adapter, name):
    return weighted_data() if name == "cross_entropy" else policy_data(tiny, adapter)


def assert_matches_float64(tiny, adapter, data, name, config):
    result = run_pass(tiny, adapter, data, name, config)
    loss, logp, grad = reference.run(tiny.plain, adapter, data, name, config)

    assert result.metrics["loss:sum"] == pytest.approx(loss, rel=1e-5, abs=1e-5)
    for ours, theirs in zip(result.logprobs, logp, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    error = (adapter.flat_grad.double() - grad).norm() / grad.norm()
    assert grad.norm() > 1e-3
    assert error <= 1e-5


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradient_are_those_of_float64(tiny, name, temperature):
    adapter = random_adapter(tiny.decoder)
    data = data_for(tiny, adapter, name)
    assert_matches_float64(tiny, adapter, data, name, {"temperature": temperature})


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("ppo", {"clip_low_threshold": 0.95, "clip_high_threshold": 1.02}),
        ("cispo", {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1}),
        ("gspo", {"clip_low_threshold": 0.5, "clip_high_threshold": 2.0}),
        ("dro", {"beta": 0.3}),
    ],
)
def test_config_keys_change_the_loss_as_their_equation_says(tiny, name, config):
    adapter = random_adapter(tiny.decoder)
    data = policy_data(tiny, adapter)
    default = run_pass(tiny, adapter, data, name).metrics["loss:sum"]

    assert_matches_float64(tiny, adapter, data, name, config)

    assert run_pass(tiny, adapter, data, name, config).metrics["loss:sum"] != default


def test_clip_thresholds_may_come_per_token(tiny):
    adapter = random_adapter(tiny.decoder)
    rng = np.random.default_rng(3)
    data = [
        Datum(
            d.model_input,
            {
                **d.loss_fn_inputs,
                "clip_low_threshold": rng.uniform(0.5, 1, n).astype(np.float32),
                "clip_high_threshold": rng.uniform(1, 2, n).astype(np.float32),
            },
        )
        for d in policy_data(tiny, adapter)
        for n in [len(d.loss_fn_inputs["logprobs"])]
    ]
    assert_matches_float64(tiny, adapter, data, "ppo", {})


def test_soft_targets_weigh_several_tokens_per_position(tiny):
    adapter = random_adapter(tiny.decoder)
    assert_matches_float64(tiny, adapter, soft_data(), "cross_entropy", {})


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_other_families_have_exact_gradients_too(tiny_of, family):
    tiny = tiny_of(family, tied=False)
    adapter = random_adapter(tiny.decoder)
    data = policy_data(tiny, adapter)
    assert_matches_float64(tiny, adapter, data, "importance_sampling", {})


@pytest.mark.parametrize(
    "train",
    [
        {"train_attn": False, "train_mlp": False},
        {"train_unembed": False},
        {"train_mlp": False, "train_unembed": False},
    ],
)
def test_partial_adapters_have_exact_gradients_too(tiny, train):
    adapter = random_adapter(tiny.decoder, **train)
    assert_matches_float64(tiny, adapter, weighted_data(), "cross_entropy", {})


def test_missing_weights_are_ones(tiny):
    adapter = random_adapter(tiny.decoder)
    bare = [Datum(d.model_input, {"target_tokens": d.loss_fn_inputs["target_tokens"]})
            for d in weighted_data()]  # fmt: skip
    assert_matches_float64(tiny, adapter, bare, "cross_entropy", {})


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("budget", [1, 20])
def test_micro_batches_give_the_result_of_one_batch(tiny, name, budget):
    adapter = random_adapter(tiny.decoder)
    data = data_for(tiny, adapter, name)
    whole = run_pass(tiny, adapter, data, name)
    grad = adapter.flat_grad.clone()

    parts = run_pass(tiny, adapter, data, name, budget=budget)

    assert gradients_agree(adapter.flat_grad, grad)
    assert parts.metrics == pytest.approx(whole.metrics, rel=1e-5)
    for a, b in zip(parts.logprobs, whole.logprobs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_the_vocabulary_in_chunks_gives_the_same(tiny, monkeypatch):
    adapter = random_adapter(tiny.decoder)
    data = policy_data(tiny, adapter)
    run_pass(tiny, adapter, data, "gspo")
    grad = adapter.flat_grad.clone()

    monkeypatch.setattr(logprobs, "CHUNK_VALUES", 3 * tiny.decoder.vocab_size)
    run_pass(tiny, adapter, data, "gspo")

    assert gradients_agree(adapter.flat_grad, grad)


def test_eight_passes_of_one_datum_are_one_pass_of_eight(tiny):
    adapter = random_adapter(tiny.decoder)
    data = (policy_data(tiny, adapter) + policy_data(tiny, adapter, seed=1))[:8]
    run_pass(tiny, adapter, data, "ppo")
    grad = adapter.flat_grad.clone()

    adapter.clear_grad()
    for datum in data:
        continue_pass(
            tiny, adapter, ForwardBackward(model_id=ModelId("m"), data=(datum,), loss_fn="ppo")
        )

    assert gradients_agree(adapter.flat_grad, grad)


def test_forward_leaves_gradients_alone_and_returns_every_logprob(tiny):
    adapter = random_adapter(tiny.decoder)
    data = policy_data(tiny, adapter)
    trained = run_pass(tiny, adapter, data, "importance_sampling")
    adapter.clear_grad()

    result = run_pass(tiny, adapter, data, "importance_sampling", forward_only=True)

    assert not adapter.flat_grad.any()
    assert result.metrics == pytest.approx(trained.metrics, rel=1e-5)
    for a, b in zip(result.logprobs, trained.logprobs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
        assert (a < 0).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"advantages": None}, ["data[1]", "advantages", "missing"]),
        ({"logprobs": np.zeros(3, np.float32)}, ["data[1]", "logprobs", "3 values"]),
        ({"advantages": np.full(10, np.nan, np.float32)}, ["data[1]", "advantages", "nan"]),
        ({"target_tokens": np.full(10, 9999)}, ["data[1]", "target_tokens", "9999", "258"]),
        ({"target_tokens": np.zeros(10, np.float32)}, ["data[1]", "target_tokens", "float32"]),
    ],
)
def test_a_bad_datum_is_named_and_nothing_is_computed(tiny, change, words):
    adapter = random_adapter(tiny.decoder)
    tokens = np.arange(10, dtype=np.int32)
    good = {
        "target_tokens": tokens.astype(np.int64),
        "logprobs": np.full(10, -1, np.float32),
        "advantages": np.ones(10, np.float32),
    }
    bad = {k: v for k, v in {**good, **change}.items() if v is not None}
    data = [Datum(ModelInput.from_ints(tokens), inputs) for inputs in (good, bad)]

    with pytest.raises(UserError) as refusal:
        run_pass(tiny, adapter, data, "ppo")

    assert all(word in str(refusal.value) for word in words)
    assert not adapter.flat_grad.any()


@pytest.mark.parametrize(
    ("name", "config", "words"),
    [
        ("nonsense", {}, ["nonsense", "cross_entropy"]),
        ("stable_reinforce", {}, ["stable_reinforce", "published"]),
        ("ppo", {"epsilon": 0.2}, ["epsilon", "clip_low_threshold"]),
        ("ppo", {"temperature": 0.0}, ["temperature"]),
        ("ppo", {"clip_low_threshold": 2.0}, ["clip_low_threshold", "1.2"]),
    ],
)
def test_unknown_losses_and_keys_are_refused_by_name(tiny, name, config, words):
    with pytest.raises(UserError) as refusal:
        run_pass(tiny, random_adapter(tiny.decoder), weighted_data(), name, config)
    assert all(word in str(refusal.value) for word in words)


def test_an_input_longer_than_the_context_is_refused_with_both_numbers(tiny):
    tokens = np.zeros(513, dtype=np.int32)
    datum = Datum(ModelInput.from_ints(tokens), {"target_tokens": tokens.astype(np.int64)})
    with pytest.raises(UserError, match=r"513.*512"):
        run_pass(tiny, random_adapter(tiny.decoder), [datum], "cross_entropy")


def test_an_empty_input_is_refused(tiny):
    datum = Datum(ModelInput.from_ints([]), {"target_tokens": np.zeros(0, np.int64)})
    with pytest.raises(LossInputError, match=r"data\[0\].model_input is empty"):
        run_pass(tiny, random_adapter(tiny.decoder), [datum], "cross_entropy")
