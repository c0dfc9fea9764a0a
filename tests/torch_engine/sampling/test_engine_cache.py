"""The prefix cache as the engine tells of it, and as it gives way."""

from pathlib import Path

import pytest
from tests.torch_engine.conftest import Tiny

from mint.core.ids import ModelId, OperationId, SamplerId
from mint.core.lora import LoraSpec
from mint.core.model_input import ModelInput
from mint.core.operations import (
    CreateModel,
    ModelReady,
    Operation,
    PinSampler,
    ReleaseSampler,
    Sample,
    SampleResult,
)
from mint.core.sampling import SamplingParams
from mint.engine.protocol import Work
from mint.torch_engine.engine import TorchEngine
from mint.torch_engine.settings import EngineSettings


@pytest.fixture
def engine(tiny: Tiny, tmp_path: Path) -> TorchEngine:
    return TorchEngine(EngineSettings(models=(f"tiny={tiny.folder}",), scratch=tmp_path))


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
