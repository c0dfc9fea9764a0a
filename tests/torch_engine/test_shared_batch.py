"""Passes of several models in one forward: as if alone, whatever happens to one of them."""

import numpy as np
import pytest
import torch
from tests.torch_engine.conftest import random_adapter, random_tokens
from tests.torch_engine.test_training import policy_data, soft_data, weighted_data

from mint.core.datum import Datum
from mint.core.errors import CapacityError
from mint.core.ids import ModelId
from mint.core.model_input import ModelInput
from mint.core.operations import ForwardBackward
from mint.torch_engine import passes as passes_module
from mint.torch_engine.budget import FEWEST, Budget, activation_bytes, budget, is_out_of_memory
from mint.torch_engine.shared_batch import compose, fair_shares, run_batch
from mint.torch_engine.training import TrainingPass

AMPLE = Budget(memory=10_000, batch=10_000)


def pass_over(tiny, adapter, data, name="cross_entropy", config=None, forward_only=False):
    operation = ForwardBackward(
        model_id=ModelId("m"), data=tuple(data), loss_fn=name, loss_fn_config=config or {},
        forward_only=forward_only,
    )  # fmt: skip
    return TrainingPass(tiny.decoder, adapter, operation)


def run(tiny, passes, tokens=AMPLE, spend=lambda _: None):
    failed = {}
    while waiting := [p for p in passes if not p.done and p not in failed]:
        failed |= run_batch(tiny.decoder, waiting, tokens, spend)
    return failed


def mixed_passes(tiny):
    """Three models of other ranks, losses and temperatures."""
    adapters = [random_adapter(tiny.decoder, rank=rank, seed=rank) for rank in (4, 7, 2)]
    return [
        pass_over(tiny, adapters[0], policy_data(tiny, adapters[0]), "gspo", {"temperature": 0.7}),
        pass_over(tiny, adapters[1], weighted_data()),
        pass_over(tiny, adapters[2], soft_data()),
    ]


def alone(tiny, n):
    """The n-th of mixed_passes, run by itself."""
    own = mixed_passes(tiny)[n]
    assert not run(tiny, [own])
    return own


def assert_same(one, other):
    difference = (one.adapter.flat_grad - other.adapter.flat_grad).norm()
    assert difference <= 5e-6 * other.adapter.flat_grad.norm()
    assert other.adapter.flat_grad.norm() > 1e-3
    assert one.result().metrics == pytest.approx(other.result().metrics, rel=1e-5)
    for a, b in zip(one.result().logprobs, other.result().logprobs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def count_forwards(tiny, monkeypatch):
    """(tokens, has a gradient, recomputes) of each forward from now on."""
    seen = []
    real = tiny.decoder.hidden

    def hidden(tokens, positions, plan, counts, course=None):
        assert course
        seen.append((len(tokens), torch.is_grad_enabled(), course.recompute))
        return real(tokens, positions, plan, counts, course)

    monkeypatch.setattr(tiny.decoder, "hidden", hidden)
    return seen


@pytest.mark.parametrize("tokens", [10_000, 60])
def test_models_that_share_a_forward_get_what_they_get_alone(tiny, monkeypatch, tokens):
    passes = mixed_passes(tiny)
    seen = count_forwards(tiny, monkeypatch)

    assert not run(tiny, passes, Budget(10_000, tokens))

    assert (len(seen) == 1) == (tokens == 10_000)
    assert max(n for n, *_ in seen) <= tokens
    for n, own in enumerate(passes):
        assert_same(own, alone(tiny, n))


def test_a_pass_is_sorted_and_cut_once_however_many_parts_it_has(tiny, monkeypatch):
    calls = []
    for name in ("prefix_tree", "cut"):
        real = getattr(passes_module, name)
        monkeypatch.setattr(
            passes_module, name, lambda *a, n=name, real=real: calls.append(n) or real(*a)
        )
    prompt, *ends = random_tokens(np.random.default_rng(0), 8, *[12] * 20)
    tokens = [np.concatenate([prompt, end]) for end in ends]
    data = [Datum(ModelInput.from_ints(t), {"target_tokens": t.astype(np.int64)}) for t in tokens]
    own = pass_over(tiny, random_adapter(tiny.decoder), data)
    seen = count_forwards(tiny, monkeypatch)

    assert not run(tiny, [own], Budget(10_000, 50))

    assert sorted(n for n, *_ in seen) == [8 + 2 * 12] + [8 + 3 * 12] * 6
    assert calls == ["prefix_tree", "cut"]
    whole = pass_over(tiny, random_adapter(tiny.decoder), data)
    assert not run(tiny, [whole])
    assert_same(own, whole)


def test_a_pass_that_fails_takes_no_other_along(tiny, monkeypatch):
    passes = mixed_passes(tiny)

    def broken(*_):
        raise ValueError("a loss of its own kind")

    monkeypatch.setattr(passes[1], "gradient", broken)

    failed = run(tiny, passes)

    assert {p: str(e) for p, e in failed.items()} == {passes[1]: "a loss of its own kind"}
    assert_same(passes[0], alone(tiny, 0))
    assert_same(passes[2], alone(tiny, 2))


def test_a_result_that_cannot_be_kept_costs_no_other_pass_its_gradient(tiny, monkeypatch):
    """By then others have taken theirs, and are done."""
    passes = mixed_passes(tiny)

    def broken(*_):
        raise ValueError("not to be kept")

    monkeypatch.setattr(passes[1], "_note", broken)

    failed = run(tiny, passes)

    assert {p: str(e) for p, e in failed.items()} == {passes[1]: "not to be kept"}
    assert_same(passes[0], alone(tiny, 0))
    assert_same(passes[2], alone(tiny, 2))


def test_an_overflow_stays_with_the_pass_that_has_it(tiny):
    passes = mixed_passes(tiny)
    inputs = {
        "target_tokens": np.array([5, 6]),
        "logprobs": np.full(2, -500, np.float32),  # exp(p - q) overflows
        "advantages": np.ones(2, np.float32),
    }
    adapter = random_adapter(tiny.decoder)
    data = [Datum(ModelInput.from_ints([1, 2]), inputs)]
    wild = pass_over(tiny, adapter, data, "importance_sampling")

    assert not run(tiny, [passes[0], wild, passes[1]])

    assert not torch.isfinite(adapter.flat_grad).all()
    assert_same(passes[0], alone(tiny, 0))
    assert_same(passes[1], alone(tiny, 1))


@pytest.mark.parametrize("calls", [1, 5, 8])
def test_what_fails_in_the_shared_part_is_tried_by_each_alone(tiny, calls):
    """Also in the backward, when some of the gradient has been added already."""
    passes = mixed_passes(tiny)
    left = [calls]

    def spend(_):
        left[0] -= 1
        if left[0] == 0:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")

    assert not run(tiny, passes, spend=spend)

    assert left[0] < 0
    for n, own in enumerate(passes):
        assert_same(own, alone(tiny, n))


def out_of_memory_above(tiny, monkeypatch, most):
    real = tiny.decoder.hidden

    def hidden(tokens, *rest):
        if len(tokens) > most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return real(tokens, *rest)

    monkeypatch.setattr(tiny.decoder, "hidden", hidden)


def test_a_micro_batch_that_does_not_fit_is_halved(tiny, monkeypatch):
    data = weighted_data()
    whole = pass_over(tiny, random_adapter(tiny.decoder), data)
    assert not run(tiny, [whole])
    halved = pass_over(tiny, random_adapter(tiny.decoder), data)
    out_of_memory_above(tiny, monkeypatch, 13)

    assert not run(tiny, [halved])

    assert_same(halved, whole)


def out_of_memory_preparing(monkeypatch, own, most):
    """Where a part's tensors are put on the device, before any forward."""
    real = own._prepare

    def prepare(part):
        if part.tokens > most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return real(part)

    monkeypatch.setattr(own, "_prepare", prepare)


def test_a_part_that_cannot_be_put_on_the_device_is_halved_and_takes_no_other_along(
    tiny, monkeypatch
):
    passes = mixed_passes(tiny)
    out_of_memory_preparing(monkeypatch, passes[1], 13)

    assert not run(tiny, passes)

    for n, own in enumerate(passes):
        assert_same(own, alone(tiny, n))


def test_a_part_that_never_fits_on_the_device_fails_its_own_pass(tiny, monkeypatch):
    passes = mixed_passes(tiny)
    out_of_memory_preparing(monkeypatch, passes[1], 0)

    failed = run(tiny, passes)

    assert list(failed) == [passes[1]]
    assert isinstance(failed[passes[1]], CapacityError)
    assert not passes[1].adapter.flat_grad.any()
    for n in (0, 2):
        assert_same(passes[n], alone(tiny, n))


def test_what_does_not_fit_halved_fails_with_a_size_that_would(tiny, monkeypatch):
    rng = np.random.default_rng(0)
    data = [
        Datum(ModelInput.from_ints(t[:-1]), {"target_tokens": t[1:].astype(np.int64)})
        for t in random_tokens(rng, 41, 41)
    ]
    small = pass_over(tiny, random_adapter(tiny.decoder), weighted_data())
    large = pass_over(tiny, random_adapter(tiny.decoder), data)
    out_of_memory_above(tiny, monkeypatch, 30)

    failed = run(tiny, [large, small])

    (error,) = failed.values()
    assert list(failed) == [large]
    assert isinstance(error, CapacityError)
    assert all(words in str(error) for words in ("80 tokens", "40", "About 20 would fit"))
    assert not large.adapter.flat_grad.any()
    assert small.done


def saved_bytes(tiny, monkeypatch, tokens):
    """(bytes kept for the backward at its start, gradient) of a pass over one datum of 200 tokens.
    What recomputing keeps by itself, the inputs of layers, autograd's hooks do not see."""
    rng = np.random.default_rng(0)
    (text,) = random_tokens(rng, 201)
    data = [Datum(ModelInput.from_ints(text[:-1]), {"target_tokens": text[1:].astype(np.int64)})]
    own = pass_over(tiny, random_adapter(tiny.decoder), data)
    seen = count_forwards(tiny, monkeypatch)
    weights = {p.data_ptr() for p in tiny.decoder._module.parameters()}
    kept = {}

    def keep(x):
        if x.untyped_storage().data_ptr() not in weights:
            kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        assert not run(tiny, [own], tokens)
    ((_, _, recomputes),) = seen
    layer_inputs = tiny.decoder.layers * 200 * tiny.decoder.width * 4
    return sum(kept.values()) + recomputes * layer_inputs, own.adapter.flat_grad.clone()


def test_a_datum_beyond_the_memory_is_computed_twice_and_keeps_less(tiny, monkeypatch):
    with monkeypatch.context() as first:
        usual, grad = saved_bytes(tiny, first, AMPLE)
    with monkeypatch.context() as second:
        recomputed, same_grad = saved_bytes(tiny, second, Budget(memory=100, batch=100))
    assert (same_grad - grad).norm() <= 1e-6 * grad.norm()
    assert recomputed < 0.3 * usual


def test_the_estimate_of_activations_is_not_below_what_is_kept(tiny, monkeypatch):
    usual, _ = saved_bytes(tiny, monkeypatch, AMPLE)
    assert usual <= 200 * activation_bytes(tiny.decoder) <= 3 * usual


def test_data_without_weight_has_no_backward(tiny, monkeypatch):
    adapter = random_adapter(tiny.decoder)
    data = policy_data(tiny, adapter)
    idle = [
        Datum(d.model_input, {**d.loss_fn_inputs, "advantages": np.zeros_like(a)})
        for d in data[:3]
        for a in [d.loss_fn_inputs["advantages"]]
    ]
    seen = count_forwards(tiny, monkeypatch)
    own = pass_over(tiny, adapter, [*idle, *data[3:]], "importance_sampling")
    assert not run(tiny, [own])
    assert [with_gradient for _, with_gradient, _ in seen] == [False, True]
    assert all((logp < 0).all() for logp in own.result().logprobs)

    seen.clear()
    nothing = pass_over(tiny, random_adapter(tiny.decoder), idle, "importance_sampling")
    assert not run(tiny, [nothing])
    assert [with_gradient for _, with_gradient, _ in seen] == [False]
    assert not nothing.adapter.flat_grad.any()


def test_each_row_goes_through_the_head_once(tiny, monkeypatch):
    """The prompt's last row is shared by a datum with weight and one without."""
    from mint.torch_engine import logprobs

    adapter = random_adapter(tiny.decoder)
    rng = np.random.default_rng(0)
    (prompt,) = random_tokens(rng, 10)
    data = []
    for n, rest in enumerate(random_tokens(rng, 5, 5)):
        text = np.concatenate([prompt, rest])
        weights = np.zeros(14, np.float32)
        weights[9 if n == 0 else 12 :] = 1
        inputs = {"target_tokens": text[1:].astype(np.int64), "weights": weights}
        data.append(Datum(ModelInput.from_ints(text[:-1]), inputs))
    rows = []
    real = logprobs.Head.logits
    monkeypatch.setattr(
        logprobs.Head, "logits", lambda self, h: rows.append(len(h)) or real(self, h)
    )

    assert not run(tiny, [pass_over(tiny, adapter, data)])

    assert sum(rows) == 10 + 4 + 4


def test_passes_with_and_without_gradient_are_kept_apart(tiny):
    adapters = [random_adapter(tiny.decoder, seed=n) for n in range(3)]
    passes = [
        pass_over(tiny, adapter, weighted_data(), forward_only=forward_only)
        for adapter, forward_only in zip(adapters, (True, False, True), strict=True)
    ]
    assert [p for p, _ in compose(passes, Budget(1000, 1000))] == [passes[0], passes[2]]
    assert [p for p, _ in compose(passes[1:], Budget(1000, 1000))] == [passes[1]]


def test_a_budget_is_divided_so_that_nothing_wanted_is_left_over():
    assert fair_shares([10, 1000, 30], 100) == [10, 60, 30]
    assert fair_shares([1000, 1000], 100) == [50, 50]
    assert fair_shares([5, 5], 100) == [5, 5]


def test_the_first_pass_is_always_in_however_large_its_datum(tiny):
    passes = [
        pass_over(tiny, random_adapter(tiny.decoder, seed=n), weighted_data()) for n in range(2)
    ]
    chosen = compose(passes, Budget(1000, 3))
    assert [p for p, _ in chosen] == passes[:1]


def answers_to_a_long_prompt():
    prompt, *ends = random_tokens(np.random.default_rng(0), 30, *[10] * 8)
    tokens = [np.concatenate([prompt, end]) for end in ends]
    return [Datum(ModelInput.from_ints(t), {"target_tokens": t.astype(np.int64)}) for t in tokens]


def test_a_part_grows_where_that_spares_a_long_beginning(tiny, monkeypatch):
    data = answers_to_a_long_prompt()
    cut, grown = (pass_over(tiny, random_adapter(tiny.decoder), data) for _ in range(2))
    seen = count_forwards(tiny, monkeypatch)

    assert not run(tiny, [cut], Budget(10_000, 60))
    assert not run(tiny, [grown], Budget(10_000, 60, 120))

    assert [n for n, *_ in seen] == [30 + 20, 30 + 30, 30 + 30, 30 + 80]
    assert_same(grown, cut)


def test_a_grown_part_that_does_not_fit_is_tried_as_small_as_one_that_did_not_grow(
    tiny, monkeypatch
):
    data = answers_to_a_long_prompt()
    cut, grown = (pass_over(tiny, random_adapter(tiny.decoder), data) for _ in range(2))
    out_of_memory_above(tiny, monkeypatch, 45)

    assert not run(tiny, [cut], Budget(10_000, 60))
    assert not run(tiny, [grown], Budget(10_000, 60, 120))

    assert_same(grown, cut)


def test_the_budget_follows_memory_the_setting_and_the_sampler(tiny):
    decoder, each = tiny.decoder, activation_bytes(tiny.decoder)
    assert budget(decoder, 4000 * each, 10_000, None) == Budget(2000, 2000, 2000)
    assert budget(decoder, 4000 * each, 640, None) == Budget(2000, 640, 1280)
    assert budget(decoder, 0, 640, None) == Budget(FEWEST, FEWEST, FEWEST)
    shorter = budget(decoder, 4000 * each, 640, 400)
    assert shorter == Budget(2000, int(400 * decoder.layers / 1.4))


def test_torch_running_out_of_memory_is_told_from_other_errors():
    with pytest.raises(RuntimeError) as refused:
        torch.empty(1 << 60)
    assert is_out_of_memory(refused.value)
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("shapes differ"))
