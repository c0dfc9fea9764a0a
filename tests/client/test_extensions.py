"""MinT's own operations from the client's side to the engine's and back, on a real server."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest
import tinker

import mint
from mint import types
from mint.client import extensions
from mint.client.settings import EMBEDDED_MODEL as MODEL
from mint.mint import (
    ReverseKLDatum,
    forward_backward_reverse_kl,
    forward_backward_reverse_kl_async,
    interpolate_checkpoints,
    interpolate_checkpoints_async,
)
from mint.testing import LocalService

PROMPT, HINT, REST = [1, 2, 3], [9, 8, 7, 6], [10, 11, 12, 13]
STEP = types.AdamParams(learning_rate=0.01)


@pytest.fixture(scope="module")
def server(shared_service: LocalService) -> LocalService:
    return shared_service


@pytest.fixture(scope="module")
def service(server: LocalService) -> mint.ServiceClient:
    return mint.ServiceClient(base_url=server.url, api_key=server.key)


@pytest.fixture
def training(service: mint.ServiceClient, server: LocalService) -> mint.TrainingClient:
    return service.create_lora_training_client(server.model, rank=4, seed=1).result()


def datum(rest=REST, hint=HINT, weights=None) -> ReverseKLDatum:
    read = PROMPT + rest[:-1]
    return ReverseKLDatum(
        types.ModelInput.from_ints(read), types.ModelInput.from_ints(hint + read), rest, weights
    )


def learn(training: mint.TrainingClient, tokens: list[int]) -> None:
    taught = types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:]},  # type: ignore[arg-type]
    )
    training.forward_backward([taught], "cross_entropy")
    training.optim_step(STEP).result()


def logprobs(service: mint.ServiceClient, path: str) -> np.ndarray:
    sampler = service.create_sampling_client(model_path=path).result()
    return np.array(
        sampler.compute_logprobs(types.ModelInput.from_ints(PROMPT + REST)).result()[1:]
    )


def test_steps_bring_the_student_to_its_reference(
    training: mint.TrainingClient, server: LocalService
):
    kls = []
    for _ in range(4):
        passed = forward_backward_reverse_kl(
            training, reference_model_path=server.model, data=[datum()], temperature=0.7
        )
        stepped = training.optim_step(STEP)
        kls.append(passed.result().metrics["reverse_kl:mean"])
        stepped.result()

    assert kls[-1] < 0.6 * kls[0]


def test_chunks_give_what_one_request_gives(
    training: mint.TrainingClient, server: LocalService, monkeypatch: pytest.MonkeyPatch
):
    data = [datum(), datum([5, 6]), datum(weights=[0.0, 2.0, -1.0, 0.0]), datum([7])]
    whole = forward_backward_reverse_kl(training, reference_model_path=server.model, data=data)
    monkeypatch.setattr(extensions, "CHUNK_DATUMS", 1)
    cut = asyncio.run(_awaited(training, server.model, data))

    assert cut.metrics == pytest.approx(whole.result().metrics, rel=1e-5)
    for one, other in zip(cut.loss_fn_outputs, whole.result().loss_fn_outputs, strict=True):
        for name in ("reverse_kl", "logprobs"):
            np.testing.assert_allclose(one[name].to_numpy(), other[name].to_numpy(), atol=1e-5)


async def _awaited(training, model, data):
    future = await forward_backward_reverse_kl_async(
        training, reference_model_path=model, data=data
    )
    return await future


def test_a_mistake_is_told_by_the_future_and_holds_the_step_back(
    training: mint.TrainingClient, server: LocalService
):
    wrong = ReverseKLDatum(
        types.ModelInput.from_ints(PROMPT + REST), types.ModelInput.from_ints(PROMPT), REST
    )
    passed = forward_backward_reverse_kl(training, reference_model_path=server.model, data=[wrong])
    stepped = training.optim_step(STEP)

    with pytest.raises(tinker.RequestFailedError, match=r"data\[0\].student_input: token"):
        passed.result()
    with pytest.raises(tinker.RequestFailedError, match="optim_step refused"):
        stepped.result()


def test_no_data_is_refused_at_once(training: mint.TrainingClient):
    with pytest.raises(mint.MintError, match="data is empty"):
        forward_backward_reverse_kl(training, reference_model_path=MODEL, data=[])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"rest": [10.0, 11.5]}, r"data\[1\].target_tokens is float64; it must hold token ids"),
        ({"rest": [True, False]}, r"data\[1\].target_tokens is bool"),
        ({"weights": [1, 0, math.nan, 1]}, r"data\[1\].weights\[2\] is nan"),
        ({"weights": [1, math.inf, 1, 1]}, r"data\[1\].weights\[1\] is inf"),
        ({"weights": [1e39, 1, 1, 1]}, r"data\[1\].weights\[0\] is 1e\+39"),
        ({"weights": list("abcd")}, r"data\[1\].weights is <U1; it must hold numbers"),
    ],
)
def test_what_is_no_token_or_no_number_is_refused_before_anything_is_sent(
    training: mint.TrainingClient, monkeypatch: pytest.MonkeyPatch, wrong, says
):
    sent = []
    monkeypatch.setattr(extensions, "submit_passes", lambda *call: sent.append(call))
    monkeypatch.setattr(extensions, "CHUNK_DATUMS", 1)
    bad = replace(
        datum(),
        target_tokens=wrong.get("rest", REST),
        weights=wrong.get("weights"),
    )

    with pytest.raises(mint.MintError, match=says):
        forward_backward_reverse_kl(training, reference_model_path=MODEL, data=[datum(), bad])

    assert not sent


@pytest.mark.parametrize("temperature", [math.nan, math.inf])
def test_a_temperature_that_is_no_number_is_refused_at_once(
    training: mint.TrainingClient, temperature: float
):
    with pytest.raises(mint.MintError, match=r"temperature=.*give a finite number"):
        forward_backward_reverse_kl(
            training, reference_model_path=MODEL, data=[datum()], temperature=temperature
        )


def test_a_coefficient_that_is_no_number_is_refused_at_once(service: mint.ServiceClient):
    with pytest.raises(mint.MintError, match=r"coefficients\[1\]=nan"):
        interpolate_checkpoints(service, source_paths=["a", "b"], coefficients=[1.0, math.nan])


def test_a_sum_of_checkpoints_lies_between_them_and_is_one_itself(
    service: mint.ServiceClient, training: mint.TrainingClient
):
    learn(training, PROMPT + REST)
    first = training.save_state("a").result().path
    learn(training, REST + PROMPT)
    second = training.save_weights_for_sampler("b").result().path

    same = interpolate_checkpoints(service, source_paths=[first], coefficients=[1.0]).result()
    mean = asyncio.run(_interpolated(service, [first, second])).path

    np.testing.assert_allclose(logprobs(service, same.path), logprobs(service, first), atol=1e-4)
    assert same.rank == 4
    assert mean.endswith("/sampler_weights/mean")
    resumed = service.create_training_client_from_state(mean).result()
    assert resumed.get_info().lora_rank == 8
    against = forward_backward_reverse_kl(resumed, reference_model_path=mean, data=[datum(hint=[])])
    assert abs(against.result().metrics["reverse_kl:sum"]) < 1e-5


async def _interpolated(service, paths):
    future = await interpolate_checkpoints_async(
        service, source_paths=paths, coefficients=[0.5, 0.5], output_path="mean"
    )
    return await future


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"coefficients": []}, "coefficients has 0 numbers for 1"),
        ({"source_paths": ["tinker://s/weights/x"]}, r"source_paths\[0\]: there is no checkpoint"),
        ({"output_path": "a/b"}, "a/b"),
    ],
)
def test_a_sum_that_cannot_be_is_refused_by_name(service: mint.ServiceClient, wanted, says):
    asked = {"source_paths": ["tinker://s/weights/x"], "coefficients": [1.0], **wanted}
    with pytest.raises(tinker.RequestFailedError, match=says):
        interpolate_checkpoints(service, **asked).result()
