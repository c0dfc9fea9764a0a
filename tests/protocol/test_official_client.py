"""The unmodified tinker SDK against a real server: the whole life of a model."""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tinker
from tests.protocol.conftest import MODEL
from tinker import types

from mint.testing import LocalService
from mint.wire.versions import MAX_CHUNK_DATUMS

PROMPT = [72, 101, 108, 108, 111]


def datum(tokens: Sequence[int], weight: float = 1.0) -> types.Datum:
    """A text to learn by heart: each token predicts the next one."""
    return types.Datum(
        model_input=types.ModelInput.from_ints(list(tokens[:-1])),
        loss_fn_inputs={
            "target_tokens": list(tokens[1:]),
            "weights": [weight] * (len(tokens) - 1),
        },  # type: ignore[arg-type]
    )


def greedy(max_tokens: int = 8) -> types.SamplingParams:
    return types.SamplingParams(max_tokens=max_tokens, temperature=0.0)


def learn(training: tinker.TrainingClient, text: Sequence[int], steps: int) -> list[float]:
    losses = []
    for _ in range(steps):
        passed = training.forward_backward([datum(text)], "cross_entropy")
        stepped = training.optim_step(types.AdamParams(learning_rate=0.01))
        losses.append(passed.result().metrics["loss:sum"])
        stepped.result()
    return losses


@pytest.fixture
def training(client: tinker.ServiceClient) -> tinker.TrainingClient:
    return client.create_lora_training_client(base_model=MODEL, rank=4, seed=1).result()


def test_capabilities_name_the_model_and_its_context(rest: tinker.RestClient):
    [model] = rest.get_server_capabilities().result().supported_models

    assert model.model_name == MODEL
    assert (model.max_context_length or 0) > 0


def test_training_lowers_the_loss_and_the_trained_model_recites(training: tinker.TrainingClient):
    text = [*PROMPT, 32, 119, 111, 114, 108, 100, 33]

    losses = learn(training, text, steps=40)
    sampler = training.save_weights_and_get_sampling_client().result()
    [sequence] = (
        sampler.sample(types.ModelInput.from_ints(PROMPT), num_samples=1, sampling_params=greedy(7))
        .result()
        .sequences
    )

    assert losses[-1] < 0.2 * losses[0]
    assert list(sequence.tokens) == text[len(PROMPT) :]
    assert sequence.stop_reason == "length"


def test_forward_gives_a_logprob_for_every_position(training: tinker.TrainingClient):
    soft = types.Datum(
        model_input=types.ModelInput.from_ints([1, 2, 3]),
        loss_fn_inputs={
            "target_tokens": types.TensorData.from_numpy(np.array([[2, 9], [3, 9], [4, 9]])),
            "weights": types.TensorData.from_numpy(np.full((3, 2), 0.5, dtype=np.float32)),
        },
    )
    output = training.forward([datum([1, 2, 3, 4], weight=0.0), soft], "cross_entropy").result()

    first, second = (out["logprobs"].to_numpy() for out in output.loss_fn_outputs)
    assert first.shape == (3,)
    assert second.shape == (3, 2)
    assert np.allclose(first, second[:, 0], atol=1e-4)  # the same tokens
    assert (first < 0).all()
    assert output.metrics["loss:sum"] == pytest.approx(-0.5 * float(second.sum()), rel=1e-4)


def test_a_custom_loss_written_in_the_client_trains(training: tinker.TrainingClient):
    import torch

    def likelier(data: list[types.Datum], logprobs: list[torch.Tensor]):
        loss = -torch.cat(logprobs).sum()
        return loss, {"mine": float(loss.detach())}

    before = after = 0.0
    for step in range(4):
        output = training.forward_backward_custom([datum([5, 6, 7, 8])], likelier).result()
        training.optim_step(types.AdamParams(learning_rate=0.01)).result()
        after = output.metrics["loss:sum"]
        before = after if step == 0 else before

    assert after < before


def test_training_goes_on_from_a_checkpoint_as_if_never_interrupted(
    client: tinker.ServiceClient, training: tinker.TrainingClient
):
    text = [9, 8, 7, 6, 5]
    learn(training, text, steps=3)
    path = training.save_state("after-three").result().path
    expected = learn(training, text, steps=2)

    resumed = client.create_training_client_from_state_with_optimizer(path).result()

    assert learn(resumed, text, steps=2) == pytest.approx(expected, rel=1e-4)
    assert path == f"tinker://{training.model_id}/weights/after-three"
    assert resumed.get_info().model_data.model_name == MODEL


@pytest.mark.filterwarnings("ignore:DEPRECATED")
def test_loading_takes_a_model_back_to_its_checkpoint(training: tinker.TrainingClient):
    text = [9, 8, 7, 6, 5]
    learn(training, text, steps=2)
    path = training.save_state("early").result().path
    [then, *_] = learn(training, text, steps=2)

    training.load_state(path).result()

    assert learn(training, text, steps=1) == pytest.approx([then], rel=1e-4)


def test_a_named_sampler_checkpoint_samples_like_the_model_that_saved_it(
    client: tinker.ServiceClient, training: tinker.TrainingClient
):
    learn(training, [*PROMPT, 33, 34, 35], steps=10)
    saved = training.save_weights_for_sampler("named").result()
    live = training.save_weights_and_get_sampling_client().result()
    named = client.create_sampling_client(model_path=saved.path).result()

    prompt = types.ModelInput.from_ints(PROMPT)
    asked = {"num_samples": 1, "sampling_params": greedy()}
    one, other = (each.sample(prompt, **asked).result().sequences[0] for each in (live, named))

    assert list(one.tokens) == list(other.tokens)
    assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_a_sampling_client_keeps_the_weights_it_was_made_with(training: tinker.TrainingClient):
    early = training.save_weights_and_get_sampling_client().result()
    prompt = types.ModelInput.from_ints(PROMPT)
    before = early.compute_logprobs(prompt).result()
    learn(training, [*PROMPT, 33], steps=5)

    late = training.save_weights_and_get_sampling_client().result()

    assert early.compute_logprobs(prompt).result()[1:] == pytest.approx(before[1:], abs=1e-5)
    assert late.compute_logprobs(prompt).result()[1:] != pytest.approx(before[1:], abs=1e-2)


def test_samples_come_with_prompt_logprobs_and_top_tokens(client: tinker.ServiceClient):
    sampler = client.create_sampling_client(base_model=MODEL).result()
    response = sampler.sample(
        types.ModelInput.from_ints(PROMPT),
        num_samples=3,
        sampling_params=types.SamplingParams(max_tokens=4, seed=7, stop=[]),
        include_prompt_logprobs=True,
        topk_prompt_logprobs=2,
    ).result()

    assert [len(sequence.tokens) for sequence in response.sequences] == [4, 4, 4]
    assert all(sequence.logprobs is not None for sequence in response.sequences)
    logprobs, top = response.prompt_logprobs, response.topk_prompt_logprobs
    assert logprobs is not None
    assert top is not None
    assert logprobs[0] is None
    assert top[0] is None
    assert len(logprobs) == len(top) == len(PROMPT)
    for row in top[1:]:
        assert row is not None
        assert len(row) == 2
        assert row[0][1] >= row[1][1]


def test_generation_ends_at_a_stop_token(client: tinker.ServiceClient):
    sampler = client.create_sampling_client(base_model=MODEL).result()
    prompt = types.ModelInput.from_ints(PROMPT)
    [free] = sampler.sample(prompt, num_samples=1, sampling_params=greedy()).result().sequences
    stop = int(free.tokens[2])
    first = list(free.tokens).index(stop)

    params = types.SamplingParams(max_tokens=8, temperature=0.0, stop=[stop])
    [sequence] = sampler.sample(prompt, num_samples=1, sampling_params=params).result().sequences

    assert sequence.stop_reason == "stop"
    assert list(sequence.tokens) == list(free.tokens)[: first + 1]


def test_a_bad_datum_fails_its_call_by_name_and_leaves_the_client_usable(
    training: tinker.TrainingClient,
):
    broken = types.Datum(
        model_input=types.ModelInput.from_ints([1, 2, 3]),
        loss_fn_inputs={"target_tokens": [2, 3], "weights": [1.0, 1.0, 1.0]},  # type: ignore[arg-type]
    )
    failing = training.forward_backward([datum([1, 2, 3]), broken], "cross_entropy")

    with pytest.raises(tinker.RequestFailedError, match=r"data\[1\].*target_tokens.*2 values"):
        failing.result()
    with pytest.raises(
        tinker.RequestFailedError, match=r"gradient is incomplete.*data\[1\].*target_tokens"
    ):
        training.optim_step(types.AdamParams()).result()
    assert learn(training, [1, 2, 3, 4], steps=1)[0] > 0


@pytest.mark.filterwarnings("ignore:DEPRECATED")
@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda t: t.forward_backward([datum([1, 2])], "stable_reinforce"), "stable_reinforce"),
        (lambda t: t.forward_backward([datum([1, 9_999_999])], "cross_entropy"), "9999999"),
        (lambda t: t.optim_step(types.AdamParams(learning_rate=-1.0)), "learning_rate"),
        (lambda t: t.save_state("a/b"), "a/b"),
        (lambda t: t.load_state("tinker://nobody/weights/x"), "nobody"),
    ],
    ids=["refused loss", "foreign token", "adam out of range", "bad name", "no checkpoint"],
)
def test_mistakes_are_told_through_the_future(training: tinker.TrainingClient, call, says: str):
    with pytest.raises(tinker.RequestFailedError, match=says) as raised:
        call(training).result()

    assert raised.value.category == "user"


def test_a_prompt_beyond_the_context_fails_with_both_numbers(
    client: tinker.ServiceClient, rest: tinker.RestClient
):
    sampler = client.create_sampling_client(base_model=MODEL).result()
    [model] = rest.get_server_capabilities().result().supported_models
    context = model.max_context_length
    assert context

    with pytest.raises(tinker.RequestFailedError, match=rf"5 tokens.*{context}"):
        sampler.sample(
            types.ModelInput.from_ints(PROMPT),
            num_samples=1,
            sampling_params=types.SamplingParams(max_tokens=context),
        ).result()


def test_an_image_is_refused_for_what_it_is(client: tinker.ServiceClient):
    sampler = client.create_sampling_client(base_model=MODEL).result()
    picture = types.ImageChunk(data=b"\x89PNG", format="png")

    with pytest.raises(tinker.RequestFailedError, match="an image"):
        sampler.sample(
            types.ModelInput(chunks=[types.EncodedTextChunk(tokens=PROMPT), picture]),
            num_samples=1,
            sampling_params=greedy(),
        ).result()


def test_an_unknown_base_model_is_refused_with_the_ones_there_are(client: tinker.ServiceClient):
    with pytest.raises(tinker.RequestFailedError, match=f"Available: {MODEL}"):
        client.create_lora_training_client(base_model="nobody/nothing").result()


def test_a_wrong_key_is_refused(server: LocalService):
    with pytest.raises(tinker.AuthenticationError, match="unknown or revoked"):
        tinker.RestClient(base_url=server.url, api_key="tml-sk-stranger")


def test_runs_and_checkpoints_are_listed_and_deleted(
    rest: tinker.RestClient, training: tinker.TrainingClient
):
    training.save_state("kept").result()
    path = training.save_weights_for_sampler("dropped").result().path
    rest.delete_checkpoint_from_tinker_path(path).result()

    left = rest.list_checkpoints(training.model_id).result().checkpoints
    run = rest.get_training_run(training.model_id).result()
    assert [(c.checkpoint_id, c.checkpoint_type) for c in left] == [("weights/kept", "training")]
    assert run.last_checkpoint
    assert run.last_checkpoint.tinker_path.endswith("/weights/kept")
    assert run.last_sampler_checkpoint is None
    runs = rest.list_training_runs().result()
    assert training.model_id in {run.training_run_id for run in runs.training_runs}


def test_policy_losses_train_on_sampled_tokens(training: tinker.TrainingClient):
    sampler = training.save_weights_and_get_sampling_client().result()
    [sequence] = (
        sampler.sample(
            types.ModelInput.from_ints(PROMPT),
            num_samples=1,
            sampling_params=types.SamplingParams(max_tokens=5, stop=[], seed=3),
        )
        .result()
        .sequences
    )
    sampled, logprobs = list(sequence.tokens), list(sequence.logprobs or [])
    before = len(PROMPT) - 1
    data = types.Datum(
        model_input=types.ModelInput.from_ints([*PROMPT, *sampled[:-1]]),
        loss_fn_inputs={
            "target_tokens": [*PROMPT[1:], *sampled],
            "logprobs": [0.0] * before + logprobs,
            "advantages": [0.0] * before + [1.0] * len(sampled),
        },  # type: ignore[arg-type]
    )

    output = training.forward_backward([data], "importance_sampling").result()

    # Sampler and trainer agree, so every ratio is 1 and the loss is minus the advantages' sum.
    assert output.metrics["loss:sum"] == pytest.approx(-len(sampled), rel=1e-3)
    scored = output.loss_fn_outputs[0]["logprobs"].to_numpy()[before:]
    assert scored == pytest.approx(logprobs, abs=1e-3)
    assert math.isfinite(output.metrics["loss:sum"])


def test_a_training_checkpoint_can_be_sampled_from(
    client: tinker.ServiceClient, training: tinker.TrainingClient
):
    learn(training, [*PROMPT, 33, 34], steps=10)
    path = training.save_state("sampled").result().path
    prompt = types.ModelInput.from_ints(PROMPT)

    live = training.save_weights_and_get_sampling_client().result().compute_logprobs(prompt)
    saved = client.create_sampling_client(model_path=path).result().compute_logprobs(prompt)

    assert saved.result()[1:] == pytest.approx(live.result()[1:], abs=1e-4)


def test_a_batch_beyond_one_request_gives_the_sum_over_its_requests(
    training: tinker.TrainingClient,
):
    data = [datum([i % 50, (i + 1) % 50]) for i in range(MAX_CHUNK_DATUMS + 10)]

    output = training.forward(data, "cross_entropy").result()

    logprobs = [float(out["logprobs"].to_numpy()[0]) for out in output.loss_fn_outputs]
    assert len(logprobs) == len(data)
    assert output.metrics["loss:sum"] == pytest.approx(-sum(logprobs), rel=1e-4)
    assert logprobs[:50] == pytest.approx(logprobs[50:100], abs=1e-4)


def test_two_scripts_at_once_train_as_if_each_were_alone(server: LocalService):
    texts = ([3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 2, 8])

    def script(text: list[int]) -> list[float]:
        service = tinker.ServiceClient(base_url=server.url, api_key=f"tml-{server.key}")
        training = service.create_lora_training_client(base_model=MODEL, rank=4, seed=1).result()
        losses = learn(training, text, steps=5)
        service.close("success").result()
        return losses

    alone = [script(text) for text in texts]
    with ThreadPoolExecutor() as threads:
        together = list(threads.map(script, texts))

    assert together[0] == pytest.approx(alone[0], rel=1e-4)
    assert together[1] == pytest.approx(alone[1], rel=1e-4)
    assert alone[0] != pytest.approx(alone[1], rel=1e-2)
