"""The prefix cache as the engine tells of it, and as it gives way."""

from pathlib import Path

import numpy as np
import pytest
from tests.torch_engine.conftest import Tiny

from mint.core.datum import Datum
from mint.core.ids import ModelId, OperationId, SamplerId
from mint.core.lora import LoraSpec
from mint.core.model_input import ModelInput
from mint.core.operations import (
    CreateModel,
    ForwardBackward,
    ModelReady,
    Operation,
    PassResult,
    PinSampler,
    ReleaseSampler,
    Sample,
    SampleResult,
)
from mint.core.sampling import SamplingParams
from mint.engine.protocol import Work
from mint.torch_engine.budget import needed_bytes
from mint.torch_engine.engine import TorchEngine
from mint.torch_engine.settings import EngineSettings


@pytest.fixture
def engine(tiny: Tiny, tmp_path: Path, layout: str) -> TorchEngine:
    models = (f"tiny={tiny.folder}",)
    return TorchEngine(EngineSettings(models=models, scratch=tmp_path, kv_layout=layout))


def run(engine: TorchEngine, operation: Operation) -> object:
    engine.start(Work(OperationId("one"), operation))
    while engine.busy:
        for outcome in engine.step():
            return outcome.result
    raise AssertionError("it never ended")


def sample(weights: str | None = None) -> Sample:
    return Sample(
        sampler_id=SamplerId("s"), base_model="tiny", weights=weights,
        prompt=ModelInput.from_ints(range(40)), params=SamplingParams(max_tokens=1),
    )  # fmt: skip


def test_the_engine_tells_what_is_cached_and_what_it_saved(engine: TorchEngine):
    for _ in range(2):
        assert isinstance(run(engine, sample()), SampleResult)

    told = engine.capacity()

    assert (told.cached_tokens, told.prompt_tokens, told.reused_prompt_tokens) == (32, 80, 32)
    assert told.sequences_set_back == 0


def test_a_released_sampler_leaves_nothing_cached(engine: TorchEngine):
    model_id = ModelId("m")
    made = run(engine, CreateModel(model_id=model_id, base_model="tiny", lora=LoraSpec(rank=2)))
    assert isinstance(made, ModelReady)
    run(engine, PinSampler(model_id=model_id, sampler_id=SamplerId("pinned")))
    assert isinstance(run(engine, sample("pinned")), SampleResult)
    assert engine.capacity().cached_tokens == 32

    run(engine, ReleaseSampler(sampler_id=SamplerId("pinned")))

    assert engine.capacity().cached_tokens == 0


def test_cached_prefixes_give_way_to_a_new_model(engine: TorchEngine):
    run(engine, sample())
    held = engine.capacity()
    assert held.cached_tokens == 32
    need = LoraSpec(rank=2)
    engine._bases.limit_bytes = held.memory_bytes + 1  # it cannot fit in any case

    run(engine, CreateModel(model_id=ModelId("m"), base_model="tiny", lora=need))

    assert engine.capacity().cached_tokens == 0


def test_cached_prefixes_give_way_to_training_as_far_as_it_needs_their_room(
    engine: TorchEngine, layout: str
):
    model_id = ModelId("m")
    run(engine, CreateModel(model_id=model_id, base_model="tiny", lora=LoraSpec(rank=2)))
    tokens = np.arange(24)
    datum = Datum(ModelInput.from_ints(tokens), {"target_tokens": tokens})
    trained = ForwardBackward(model_id=model_id, data=(datum,), loss_fn="cross_entropy")
    for operation in (trained, sample()):
        run(engine, operation)
    held = engine.capacity()
    assert held.cached_tokens == 32
    (base,) = engine._bases.loaded()
    unused = {"contiguous": 0, "paged": 16}[layout]  # a page of the prompt that was not whole
    a_token = base.decoding.kv_bytes // (held.cached_tokens + unused)
    need = needed_bytes(base.decoder, len(tokens))

    engine._bases.limit_bytes = held.memory_bytes + need - unused * a_token
    assert isinstance(run(engine, trained), PassResult)
    assert engine.capacity().cached_tokens == 32
    assert base.decoding.kv_bytes == 32 * a_token

    engine._bases.limit_bytes -= a_token
    assert isinstance(run(engine, trained), PassResult)
    assert engine.capacity().cached_tokens == 16  # a block is the least that can be given up
    assert engine._bases.limit_bytes - engine.capacity().memory_bytes >= need
