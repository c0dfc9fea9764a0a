"""A weighted sum of adapters computes the sum of what each adds, whatever their shapes."""

from itertools import accumulate
from typing import Any

import numpy as np
import pytest
import torch
from tests.torch_engine.conftest import random_tokens
from tests.torch_engine.test_decoder import packed_logits
from torch.profiler import ProfilerActivity, profile

from mint.core.errors import CapacityError, UserError
from mint.core.ids import ModelId
from mint.core.lora import LoraSpec
from mint.core.operations import InterpolateCheckpoints
from mint.torch_engine import checkpoint, interpolation
from mint.torch_engine.interpolation import Source, SumPlan, Term, interpolate
from mint.torch_engine.lora import AdapterWeights, Layout


def adapter(decoder, seed: int, **spec) -> AdapterWeights:
    layout = Layout.of(LoraSpec(**spec), decoder.targets)
    generator = torch.Generator().manual_seed(seed)
    return AdapterWeights(layout, torch.randn(layout.size, generator=generator) * 0.1)


def weighted_sum(terms: list[Term], targets, model_id: str) -> AdapterWeights:
    return interpolation.weighted_sum(SumPlan.of(terms, targets), targets, model_id)


def delta(weights: Source, name: str) -> torch.Tensor | float:
    """What an adapter adds to a weight, float64; 0 where it adds nothing."""
    if name not in weights.pairs:
        return 0.0
    a, b = (x.detach().double() for x in weights.pairs[name])
    return weights.layout.scale * b @ a


def is_sum(made: AdapterWeights, terms: list[Term], decoder) -> bool:
    """Within float32's rounding of the largest value."""
    for target in decoder.targets:
        wanted = sum((t.coefficient * delta(t.weights, target.name) for t in terms), start=0.0)
        error = torch.as_tensor(delta(made, target.name) - wanted).abs().max()
        if error > 2e-7 * max(1.0, float(torch.as_tensor(wanted).abs().max())):
            return False
    return True


def test_ranks_alphas_and_linears_of_any_kind_add_up(tiny):
    terms = [
        Term(0.75, adapter(tiny.decoder, 1, rank=4)),
        Term(-2.0, adapter(tiny.decoder, 2, rank=3, alpha=5.0, train_unembed=False)),
        Term(0.5, adapter(tiny.decoder, 3, rank=2, train_attn=False, train_mlp=False)),
    ]

    made = weighted_sum(terms, tiny.decoder.targets, "run")

    # 4 + 3 where the first two meet; the head has 4 + 2
    assert made.layout.spec == LoraSpec(rank=7, alpha=32.0)
    assert is_sum(made, terms, tiny.decoder)


def test_a_mean_of_one_runs_adapters_is_not_the_mean_of_their_factors(tiny):
    one, other = adapter(tiny.decoder, 1, rank=4), adapter(tiny.decoder, 2, rank=4)
    terms = [Term(0.5, one), Term(0.5, other)]

    made = weighted_sum(terms, tiny.decoder.targets, "run")

    assert is_sum(made, terms, tiny.decoder)
    factor_wise = AdapterWeights(one.layout, (one.flat + other.flat) / 2)
    assert not is_sum(factor_wise, terms, tiny.decoder)


def test_a_rank_beyond_what_a_weight_can_have_is_brought_down_to_it(tiny):
    terms = [Term(0.3, adapter(tiny.decoder, seed, rank=20)) for seed in range(4)]

    made = weighted_sum(terms, tiny.decoder.targets, "run")

    # the model is 32 wide, so no linear of it has a higher rank
    assert made.layout.spec.rank == 32
    assert is_sum(made, terms, tiny.decoder)


def test_a_reduced_sum_has_the_rank_that_it_really_has(tiny):
    one, other = adapter(tiny.decoder, 1, rank=3), adapter(tiny.decoder, 2, rank=5)
    terms = [Term(0.1 * (-1) ** n, one if n % 2 else other) for n in range(1, 12)]

    made = weighted_sum(terms, tiny.decoder.targets, "run")

    assert made.layout.spec.rank == 8
    assert is_sum(made, terms, tiny.decoder)


def test_a_rank_that_is_not_served_is_refused_only_if_the_sum_has_it(tiny, monkeypatch):
    monkeypatch.setattr(interpolation, "MAX_RANK", 7)
    one, other = adapter(tiny.decoder, 1, rank=4), adapter(tiny.decoder, 2, rank=4)
    twice = [Term(0.5, one), Term(0.25, one)]

    made = weighted_sum(twice, tiny.decoder.targets, "run")

    assert made.layout.spec.rank == 4
    assert is_sum(made, twice, tiny.decoder)
    with pytest.raises(UserError, match=r"the sum has rank 8 on \S+, and an adapter here has 7"):
        weighted_sum([Term(0.5, one), Term(0.5, other)], tiny.decoder.targets, "run")


def test_terms_that_cancel_leave_the_base_model(tiny):
    one = adapter(tiny.decoder, 1, rank=20)

    made = weighted_sum([Term(1.0, one), Term(-1.0, one)], tiny.decoder.targets, "run")
    nothing = weighted_sum([Term(0.0, one)], tiny.decoder.targets, "run")

    tokens = random_tokens(np.random.default_rng(0), 9)
    [base] = packed_logits(tiny.decoder, None, tokens)
    for weights in (made, nothing):
        assert (packed_logits(tiny.decoder, weights, tokens)[0] - base).abs().max() <= 1e-5
    assert nothing.layout.spec.rank == 1


def test_rows_that_a_linear_does_not_need_can_learn(tiny):
    terms = [
        Term(1.0, adapter(tiny.decoder, 1, rank=4)),
        Term(1.0, adapter(tiny.decoder, 2, rank=3, train_attn=False)),
    ]

    made = weighted_sum(terms, tiny.decoder.targets, "run")

    a, b = made.pairs["model.layers.0.self_attn.q_proj"]
    assert (a[4:].abs().amax(dim=1) > 0).all()
    assert b[:, 4:].abs().max() == 0


def test_a_sum_beyond_float32_is_refused(tiny):
    with pytest.raises(UserError, match="beyond float32's range"):
        weighted_sum([Term(1e300, adapter(tiny.decoder, 1, rank=2))], tiny.decoder.targets, "run")


def saved(tmp_path, weights: AdapterWeights, name: str, base_model: str = "tiny"):
    folder = tmp_path / name
    checkpoint.save(folder, weights, base_model, None)
    return folder


def plenty(_wanted: int) -> int:
    return 1 << 40


def asked(*names: str, coefficients=(0.5, 0.5)) -> InterpolateCheckpoints:
    return InterpolateCheckpoints(
        model_id=ModelId("s:train:0"),
        base_model="tiny",
        path="tinker://s:train:0/sampler_weights/mean",
        source_paths=tuple(f"tinker://s:train:{n}/weights/{name}" for n, name in enumerate(names)),
        coefficients=coefficients,
    )


def test_checkpoints_become_one_that_reads_like_any_other(tiny, tmp_path):
    one, other = adapter(tiny.decoder, 1, rank=4), adapter(tiny.decoder, 2, rank=2)
    folders = [saved(tmp_path, one, "a"), saved(tmp_path, other, "b")]

    done = interpolate(asked("a", "b"), tiny.decoder, folders, tmp_path / "sum", plenty)

    manifest = checkpoint.read_manifest(tmp_path / "sum")
    assert (manifest.lora, manifest.base_model) == (done.lora, "tiny")
    assert manifest.optimizer_steps is None
    assert set(done.files) == {path.name for path in (tmp_path / "sum").iterdir()}
    layout = Layout.of(manifest.lora, tiny.decoder.targets)
    made = AdapterWeights(layout, checkpoint.load_weights(tmp_path / "sum", layout))
    assert is_sum(made, [Term(0.5, one), Term(0.5, other)], tiny.decoder)


def test_a_sum_that_memory_does_not_hold_is_refused_before_it_is_computed(tiny, tmp_path):
    folders = [saved(tmp_path, adapter(tiny.decoder, n, rank=20), f"{n}") for n in range(4)]
    wanted = []

    def free(nbytes: int) -> int:
        wanted.append(nbytes)
        return nbytes - 1

    with pytest.raises(CapacityError, match="a sum of 4 checkpoints, of a rank of up to 32, needs"):
        interpolate(
            asked(*"0123", coefficients=(1.0,) * 4), tiny.decoder, folders, tmp_path / "sum", free
        )

    assert not (tmp_path / "sum").exists()
    interpolate(
        asked(*"0123", coefficients=(1.0,) * 4), tiny.decoder, folders, tmp_path / "sum",
        lambda nbytes: nbytes,
    )  # fmt: skip
    assert (tmp_path / "sum").exists()


@pytest.mark.parametrize(("rank", "reduces"), [(3, False), (20, True)])
def test_a_sum_takes_no_more_memory_than_it_said(tiny, rank, reduces):
    terms = [Term(0.1, adapter(tiny.decoder, seed, rank=rank)) for seed in range(6)]
    plan = SumPlan.of(terms, tiny.decoder.targets)

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        interpolation.weighted_sum(plan, tiny.decoder.targets, "run")

    assert plan.reduces == reduces
    assert peak_bytes(seen) <= plan.nbytes <= 3 * peak_bytes(seen)


def peak_bytes(seen: Any) -> int:
    """Most that torch's allocator had handed out at a time; the types of its events say too little."""
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    return max(accumulate(e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())))


def test_another_base_models_checkpoint_is_refused_by_its_path(tiny, tmp_path):
    weights = adapter(tiny.decoder, 1, rank=4)
    folders = [saved(tmp_path, weights, "a"), saved(tmp_path, weights, "b", "large")]

    with pytest.raises(UserError, match="tinker://s:train:1/weights/b was trained on 'large'"):
        interpolate(asked("a", "b"), tiny.decoder, folders, tmp_path / "sum", plenty)

    assert not (tmp_path / "sum").exists()


def test_a_coefficient_too_few_is_refused(tiny, tmp_path):
    with pytest.raises(UserError, match="coefficients has 1 numbers for 2"):
        interpolate(
            asked("a", "b", coefficients=(1.0,)), tiny.decoder, [], tmp_path / "sum", plenty
        )
