"""A step of training and the agreement of sampler and trainer, on every device there is."""

import numpy as np
import pytest
import torch
from tests.torch_engine.test_engine import PROMPT, Bench

from mint.core.datum import Datum
from mint.core.ids import SamplerId
from mint.core.model_input import ModelInput
from mint.core.operations import ForwardBackward, PassResult, PinSampler, Sample, SampleResult
from mint.core.sampling import SamplingParams
from mint.torch_engine.engine import TorchEngine
from mint.torch_engine.models.tiny import build_tiny
from mint.torch_engine.settings import EngineSettings

CUDA = (
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
)


@pytest.mark.parametrize(
    ("device", "dtype", "layout", "tolerance"),
    [
        ("cpu", "float32", "contiguous", 1e-4),
        ("cpu", "float32", "paged", 1e-4),
        pytest.param("cuda", "float32", "auto", 1e-3, marks=CUDA),
        pytest.param("cuda", "bfloat16", "contiguous", 0.3, marks=CUDA),
        pytest.param("cuda", "bfloat16", "paged", 0.3, marks=CUDA),
    ],
)
def test_a_trained_adapter_is_sampled_and_scored_alike(tmp_path, device, dtype, layout, tolerance):
    settings = EngineSettings(
        models=(f"tiny={build_tiny(tmp_path / 'm')}",), device=device, dtype=dtype,
        scratch=tmp_path / "s", kv_layout=layout,
    )  # fmt: skip
    bench = Bench(TorchEngine(settings))
    model_id = bench.create("a")
    bench.train(model_id, steps=2)
    sampler = SamplerId("s")
    bench.run(PinSampler(model_id=model_id, sampler_id=sampler))

    drawn = bench.run(
        Sample(
            sampler_id=sampler, base_model="tiny", weights=sampler, num_samples=4,
            prompt=ModelInput.from_ints(PROMPT), params=SamplingParams(max_tokens=12, seed=3),
        )
    )  # fmt: skip
    assert isinstance(drawn, SampleResult), drawn
    data = tuple(_datum(sequence.tokens) for sequence in drawn.sequences)
    passed = bench.run(
        ForwardBackward(model_id=model_id, data=data, loss_fn="cross_entropy", forward_only=True)
    )

    assert isinstance(passed, PassResult), passed
    for sequence, scored in zip(drawn.sequences, passed.logprobs, strict=True):
        np.testing.assert_allclose(
            np.asarray(scored)[-len(sequence.tokens) :], sequence.logprobs, atol=tolerance, rtol=0
        )


def _datum(tokens) -> Datum:
    whole = np.concatenate([PROMPT, np.asarray(tokens, np.int32)])
    targets = whole[1:].astype(np.int64)
    return Datum(
        ModelInput.from_ints(whole[:-1]),
        {"target_tokens": targets, "weights": np.ones(len(targets), np.float32)},
    )
