"""The way to the service: promises of every shape, order, and who may cancel what."""

import asyncio
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pytest
from tests.recipe.fake_service import FakeService, Shape

import mint
from mint import types
from mint.recipe import service
from mint.recipe.service import Service
from mint.testing import LocalService

PROMPT = types.ModelInput.from_ints([1, 2, 3])
PARAMS = types.SamplingParams(max_tokens=4)


def datum() -> types.Datum:
    return types.Datum(
        model_input=types.ModelInput.from_ints([1, 2]),
        loss_fn_inputs={
            "target_tokens": types.TensorData(data=[2, 3], dtype="int64", shape=[2]),
            "logprobs": types.TensorData(data=[0.0, -0.5], dtype="float32", shape=[2]),
            "advantages": types.TensorData(data=[0.0, 1.0], dtype="float32", shape=[2]),
        },
    )


async def connected(fake: FakeService) -> Service:
    return await Service.connect(base_url=None, user_metadata={}, client=fake)


class Promise:
    """A promise as a later SDK gives it: a future is behind it."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def future(self) -> Future[Any]:
        return self._future


# ------------------------------------------------------------------ promises


async def test_a_value_resolves_to_itself():
    assert await service.resolved(3) == 3


async def test_a_promise_of_a_promise_resolves_to_the_value():
    inner: Future[int] = Future()
    inner.set_result(7)

    async def outer() -> Promise:
        return Promise(inner)

    assert await service.resolved(outer()) == 7


async def test_what_a_promise_fails_with_is_raised_as_itself():
    broken: Future[int] = Future()
    broken.set_exception(mint.APIConnectionError(request=None))  # type: ignore[arg-type]
    with pytest.raises(mint.APIConnectionError):
        await service.resolved(Promise(broken))


async def test_an_object_with_a_future_that_is_none_is_a_value():
    class Answer:
        future = "later"

    answer = Answer()
    assert await service.resolved(answer) is answer


async def test_cancelling_ends_the_waiting_and_not_the_request():
    request: Future[int] = Future()
    waiting = asyncio.create_task(service.resolved(Promise(request)))
    await asyncio.sleep(0)

    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert not request.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    request.set_result(1)  # and nobody minds
    await asyncio.sleep(0)


def test_an_answer_to_a_loop_that_is_closed_is_let_go():
    request: Future[int] = Future()

    async def leave() -> None:
        task = asyncio.create_task(service.resolved(request))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(leave())
    request.set_result(1)
    assert request.result() == 1


async def test_a_promise_kept_in_another_thread_wakes_the_loop():
    request: Future[str] = Future()
    threading.Timer(0.01, request.set_result, ["there"]).start()
    assert await asyncio.wait_for(service.resolved(request), 5) == "there"


# -------------------------------------------------------- both SDKs' shapes


@pytest.fixture(params=["0.22", "0.38"])
def fake(request: pytest.FixtureRequest) -> FakeService:
    shape: Shape = request.param
    return FakeService(sdk=shape, latency_s=0.005)


async def test_clients_are_made_and_used(fake: FakeService):
    connection = await connected(fake)
    training = await connection.create_lora_training_client("m", 8, {"renderer_name": "qwen3"})
    sampler = await service.ephemeral_sampling_client(training)
    answer = await service.sample(sampler, PROMPT, num_samples=2, params=PARAMS)

    assert [sequence.tokens for sequence in answer.sequences] == [[52], [52]]
    assert answer.sequences[0].logprobs == [-0.5]
    assert fake.names() == [
        "create_lora_training_client", "save_weights_and_get_sampling_client", "sample",
    ]  # fmt: skip


async def test_a_step_is_submitted_in_order_before_anything_is_awaited(fake: FakeService):
    training = await (await connected(fake)).create_lora_training_client("m", 8)

    passed = await service.submit_forward_backward(training, [datum()], "ppo", {"beta": 1.0})
    stepped = await service.submit_optim_step(training, types.AdamParams(learning_rate=1e-4))
    assert fake.names()[1:] == ["forward_backward", "optim_step"]

    output = await passed
    await stepped
    assert output.loss_fn_outputs[0]["logprobs"].tolist() == [-1.0, -0.5]
    assert fake.called("forward_backward")[0].arguments["loss_fn_config"] == {"beta": 1.0}


async def test_what_is_saved_can_be_trained_on_and_sampled_from(fake: FakeService):
    connection = await connected(fake)
    training = await connection.create_lora_training_client("m", 8)
    await (await service.submit_optim_step(training, types.AdamParams(learning_rate=1e-4)))
    state = (await service.submit_save_state(training, "000001", 3600)).path
    sampler_path = (await service.submit_save_weights_for_sampler(training, "000001", None)).path

    resumed = await connection.create_training_client_from_state(state, with_optimizer=True)
    restarted = await connection.create_training_client_from_state(state, with_optimizer=False)
    sampler = await connection.create_sampling_client(model_path=sampler_path)

    assert (resumed.steps, resumed.weights.optimizer_steps) == (1, 1)
    assert (restarted.steps, restarted.weights.optimizer_steps) == (1, 0)
    assert sampler.steps == 1
    assert fake.checkpoints[state].ttl_seconds == 3600


async def test_a_deleted_checkpoint_is_gone(fake: FakeService):
    connection = await connected(fake)
    training = await connection.create_lora_training_client("m", 8)
    path = (await service.submit_save_state(training, "x", None)).path
    await connection.delete_checkpoint(path)
    assert path not in fake.checkpoints


async def test_a_text_is_scored_and_its_first_token_is_not(fake: FakeService):
    fake.score = lambda tokens, temperature: [-temperature * token for token in tokens]
    sampler = await (await connected(fake)).create_sampling_client(base_model="m")

    assert await service.compute_logprobs(sampler, PROMPT) == [None, -2.0, -3.0]
    assert await service.compute_logprobs(sampler, PROMPT, temperature=0.5) == [None, -1.0, -1.5]


async def test_a_client_that_says_nothing_does_not_know_temperatures():
    class Upstreams:
        pass

    fake = FakeService(scales_loss_by_temperature=True)
    assert await (await connected(fake)).scales_loss_by_temperature()
    fake.scales_loss_by_temperature = False
    assert not await (await connected(fake)).scales_loss_by_temperature()
    assert not await Service(Upstreams()).scales_loss_by_temperature()


async def test_fields_that_an_sdk_lacks_have_defaults():
    class OldSequence:
        tokens = (1,)

    assert service.sequence_id(OldSequence()) is None
    assert service.cache_hit_tokens(object()) == 0


# -------------------------------------------------- the real SDK and server


@pytest.fixture(scope="module")
def server(shared_service: LocalService) -> LocalService:
    return shared_service


@pytest.fixture
def real(server: LocalService) -> Callable[[], mint.ServiceClient]:
    return lambda: mint.ServiceClient(base_url=server.url, api_key=server.key)


async def test_our_server_scales_losses_and_prompts_by_temperature(real, server: LocalService):
    connection = Service(real())
    assert await connection.scales_loss_by_temperature()

    sampler = await connection.create_sampling_client(base_model=server.model)
    at_1 = await service.compute_logprobs(sampler, PROMPT)
    at_2 = await service.compute_logprobs(sampler, PROMPT, temperature=2.0)
    assert at_1[0] is None
    assert at_2[0] is None
    assert at_1[1:] != at_2[1:]


async def test_a_real_step_warns_of_nothing(real, server: LocalService):
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        connection = await Service.connect(base_url=None, user_metadata={}, client=real())
        assert await connection.supported_models() == [server.model]
        training = await connection.create_lora_training_client(server.model, 4, {"a": "b"})
        passed = await service.submit_forward_backward(
            training, [datum()], "importance_sampling", None
        )
        stepped = await service.submit_optim_step(training, types.AdamParams(learning_rate=1e-3))
        output = await passed
        await stepped
        path = (await service.submit_save_state(training, "one", None)).path
        sampler = await service.ephemeral_sampling_client(training)
        answer = await service.sample(sampler, PROMPT, num_samples=2, params=PARAMS)

    assert len(output.loss_fn_outputs[0]["logprobs"].tolist()) == 2
    assert len(answer.sequences) == 2
    assert service.sequence_id(answer.sequences[0]) != service.sequence_id(answer.sequences[1])
    assert await connection.user_metadata_of(path) == {"a": "b"}
    await connection.delete_checkpoint(path)


async def test_a_session_that_was_opened_here_is_ended_and_one_that_was_given_is_not(
    real, server: LocalService, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MINT_API_KEY", server.key)
    async with await Service.connect(base_url=server.url, user_metadata={}) as ours:
        await ours.create_sampling_client(base_model=server.model)
    with pytest.raises(RuntimeError, match="closed"):
        await ours.create_sampling_client(base_model=server.model)

    given = real()
    async with await Service.connect(base_url=None, user_metadata={}, client=given):
        pass
    assert await Service(given).create_sampling_client(base_model=server.model)


async def test_how_a_session_ended_is_told_and_a_server_that_is_gone_is_no_failure():
    told: list[str] = []

    class Gone:
        def close(self, status: str) -> None:
            told.append(status)
            raise ConnectionError

    for error in (None, ValueError(), asyncio.CancelledError()):
        with suppress(ValueError, asyncio.CancelledError):
            async with Service(Gone(), owns_client=True):
                if error is not None:
                    raise error
    assert told == ["success", "errored", "interrupted"]


async def test_code_that_blocks_the_loop_on_an_answer_does_not_deadlock(real, server: LocalService):
    """Trap 23: an env may call a real client, and wait for it, inside its step."""
    sampler = await Service(real()).create_sampling_client(base_model=server.model)
    others = asyncio.create_task(service.sample(sampler, PROMPT, num_samples=1, params=PARAMS))
    await asyncio.sleep(0)

    blocked = sampler.sample(PROMPT, 1, PARAMS).result(timeout=30)  # on the loop's own thread

    assert len(blocked.sequences) == 1
    assert len((await asyncio.wait_for(others, 30)).sequences) == 1
