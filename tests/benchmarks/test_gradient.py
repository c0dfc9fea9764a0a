"""The gradient that benchmarks read off an optimizer step is the gradient."""

from pathlib import Path

import pytest
from benchmarks.ours import Ours
from benchmarks.workloads import random_answers

from benchmarks import ours, rivals
from mint.torch_engine.models.tiny import build_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"tiny={build_tiny(tmp_path_factory.mktemp('model') / 'tiny')}"


def test_the_engine_has_the_gradient_of_peft_and_keeps_its_weights(model: str, tmp_path: Path):
    answers = random_answers(1, 3, 8, 4, rivals.vocabulary(model))
    data = [ours.datum(answer) for answer in answers]
    engine = Ours(model, tmp_path, threads=1)
    model_id = engine.create(rank=4)
    engine.learn(model_id, data)
    folder = engine.save(model_id)

    mine = engine.gradient(ours.policy_pass(model_id, data))
    peft = rivals.load_peft(model, rank=4, adapter=folder)
    rivals.policy_pass(peft, rivals.rows(answers), 2)
    theirs = rivals.gradient(peft)

    assert ours.relative_error(mine, theirs) < 1e-4
    assert ours.cosine(mine, theirs) == pytest.approx(1, abs=1e-6)
    assert ours.relative_error(ours.adapter(engine.save(model_id)), ours.adapter(folder)) == 0


def test_generate_draws_so_many_tokens_whatever_they_are(model: str):
    peft = rivals.load_peft(model, rank=4)

    drawn_BT, logprobs_BT = rivals.generate(peft, [[5, 6, 7], [8, 9]], num_samples=3, tokens=40)

    assert drawn_BT.shape == logprobs_BT.shape == (6, 40)
    assert bool((logprobs_BT < 0).all())
