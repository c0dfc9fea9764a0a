"""What gives the same bits again, and what gives the same but for the last of them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.torch_engine.test_engine import PROMPT, Bench, datum, make_engine, passes, sample, step

from mint.core.ids import SamplerId
from mint.core.model_input import ModelInput
from mint.core.operations import Failure, PassResult, PinSampler, SampleResult
from mint.torch_engine.models.tiny import build_tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("tiny"), hidden=64, head_dim=16, intermediate=192)


@pytest.fixture
def _threads_restored() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def group(first: int) -> tuple:
    """Answers to one question, so that a tree is packed, and one text by itself."""
    answers = (b"5", b"23", b"I do not know, and nor do you.", b"5 of course")
    return (*(datum(b"What is 2 + 3? " + a) for a in answers), datum(bytes([first]) * 70))


def bits(values: np.ndarray) -> list[int]:
    return np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).tolist()


def two_models_at_work(engine: Bench) -> tuple[list, list, list]:
    """Passes that share forwards and are cut in micro-batches, steps, and samples drawn beside
    them: (bits of the weights, of the passes' logprobs, tokens and bits of what was drawn)."""
    models = [engine.create(name, rank=rank) for name, rank in (("a", 4), ("b", 7))]
    for model in models:
        engine.train(model, data=group(65))
        engine.run(PinSampler(model_id=model, sampler_id=SamplerId(f"s {model}")))
    trained, drawn = [], []
    for n, model in enumerate(models):
        drawn.append(engine.start(sample(f"s {model}", num_samples=5, params={"max_tokens": 30})))
        trained.append(engine.start(passes(model, data=group(66 + n))))
        engine.start(step(model))
    results = engine.finish()
    assert not [r for r in results.values() if isinstance(r, Failure)]
    weights = [bits(engine.engine._models[m].adapter.flat.detach().numpy()) for m in models]
    logprobs, sequences = [], []
    for operation_id in trained:
        passed = results[operation_id]
        assert isinstance(passed, PassResult)
        logprobs.append([bits(logp) for logp in passed.logprobs])
    for operation_id in drawn:
        sampled = results[operation_id]
        assert isinstance(sampled, SampleResult)
        sequences.append([(s.tokens.tolist(), bits(s.logprobs)) for s in sampled.sequences])
    return weights, logprobs, sequences


def test_the_same_operations_give_the_same_bits_in_another_engine(folder: Path, tmp_path: Path):
    """Of weights after several steps, of logprobs, and of what is sampled meanwhile."""
    first, second = (
        two_models_at_work(Bench(make_engine(folder, tmp_path / name, threads=1, batch_tokens=60)))
        for name in ("first", "second")
    )
    assert first == second
    assert first[0][0] != first[0][1]


@pytest.mark.usefixtures("_threads_restored")
def test_two_threads_give_the_same_bits_each_time(folder: Path, tmp_path: Path):
    found = []
    for name in ("first", "second"):
        engine = Bench(make_engine(folder, tmp_path / name, threads=2))
        model = engine.create("m")
        engine.train(model, data=group(65))
        drawn = engine.sample(num_samples=2, params={"max_tokens": 3})
        weights = engine.engine._models[model].adapter.flat.detach().numpy()
        found.append([bits(weights), *(bits(s.logprobs) for s in drawn.sequences)])
    assert torch.get_num_threads() == 2
    assert found[0] == found[1]


def test_a_seeded_request_repeats_in_another_engine_to_the_bit_and_in_the_same_but_for_the_cache(
    folder: Path, tmp_path: Path
):
    """The second time its prompt is in the cache, so its products have other shapes."""
    engines = [Bench(make_engine(folder, tmp_path / name)) for name in ("one", "other")]
    asked = replace(sample(num_samples=4), prompt=ModelInput.from_ints(np.tile(PROMPT, 4)))
    one, other, again = (engines[n].run(asked) for n in (0, 1, 0))
    assert isinstance(one, SampleResult)
    assert isinstance(other, SampleResult)
    assert isinstance(again, SampleResult)

    assert engines[0].engine.capacity().reused_prompt_tokens > 0
    for a, b, c in zip(one.sequences, other.sequences, again.sequences, strict=True):
        assert a.tokens.tolist() == b.tokens.tolist() == c.tokens.tolist()
        assert bits(a.logprobs) == bits(b.logprobs)
        np.testing.assert_allclose(c.logprobs, a.logprobs, atol=3e-5, rtol=0)


def test_another_order_other_micro_batches_and_company_change_no_more_than_rounding(
    folder: Path, tmp_path: Path
):
    data = group(65)
    gradients, logprobs = [], []
    for name, batch_tokens, order in (("as it came", 640, 1), ("turned round", 33, -1)):
        engine = Bench(make_engine(folder, tmp_path / name, batch_tokens=batch_tokens))
        model, other = engine.create("m"), engine.create("other", seed=2)
        adapter = engine.engine._models[model].adapter
        generator = torch.Generator().manual_seed(1)
        adapter.flat.data.copy_(torch.randn(adapter.layout.size, generator=generator) * 0.05)
        operation_id = engine.start(passes(model, data=data[::order]))
        if order < 0:
            engine.start(passes(other, data=group(90)))
        result = engine.finish()[operation_id]
        assert isinstance(result, PassResult)
        gradients.append(adapter.flat_grad)
        logprobs.append(np.concatenate(result.logprobs[::order]))
    assert (gradients[0] - gradients[1]).norm() <= 1e-5 * gradients[0].norm()
    np.testing.assert_allclose(logprobs[1], logprobs[0], atol=3e-5, rtol=0)
