"""The passes of one base model, turn by turn."""

import gc
import weakref

from tests.torch_engine.conftest import Tiny, random_adapter
from tests.torch_engine.test_shared_batch import AMPLE, pass_over
from tests.torch_engine.test_training import weighted_data

from mint.torch_engine import trainer as trainers
from mint.torch_engine.trainer import Trainer


def test_a_pass_that_is_done_is_let_go(tiny: Tiny):
    trainer = Trainer(tiny.decoder)
    done = pass_over(tiny, random_adapter(tiny.decoder), weighted_data())
    while not done.done:
        trainer.advance([done], lambda: AMPLE, 1e9)
    held = weakref.ref(done)

    del done
    gc.collect()

    assert held() is None


def test_a_pass_that_came_during_a_batch_does_not_fail_with_it(tiny: Tiny, monkeypatch):
    member, late = (
        pass_over(tiny, random_adapter(tiny.decoder, seed=seed), weighted_data()) for seed in (1, 2)
    )
    broken = RuntimeError("a mistake of ours")

    def run_batch(decoder, passes, budget, spend):
        spend(1)
        raise broken

    trainer = Trainer(tiny.decoder)
    with monkeypatch.context() as patch:
        patch.setattr(trainers, "run_batch", run_batch)
        assert trainer.advance([member], lambda: AMPLE, 1) == (1, {})
        assert trainer.is_halfway
        assert trainer.advance([member, late], lambda: AMPLE, 1) == (0, {member: broken})

    assert not trainer.is_halfway
    while not late.done:
        assert not trainer.advance([late], lambda: AMPLE, 1e9)[1]
