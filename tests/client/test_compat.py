"""What our clients change about upstream's, as a server sees it."""

import asyncio
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import tinker

import mint
from mint.core.errors import UnsupportedError

PROMPT = mint.ModelInput.from_ints([1, 2, 3])

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture
def client(service) -> Iterator[mint.ServiceClient]:
    made = mint.ServiceClient(base_url=service.url, api_key="sk-secret")
    yield made
    made.close("success").result()


def test_every_request_goes_below_the_base_urls_path_with_the_key_upstream_accepts(service, client):
    client.create_sampling_client(base_model="acme/tiny").result()

    assert {path.partition("/api/")[0] for path in service.paths()} == {"/train"}
    assert {asked.key for asked in service.asked} == {"tml-sk-secret"}


def test_settings_come_from_the_environment(service, monkeypatch):
    monkeypatch.setenv("MINT_BASE_URL", service.url)
    monkeypatch.setenv("MINT_API_KEY", "sk-env")
    monkeypatch.setenv("TINKER_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("TINKER_API_KEY", "tml-other")

    answer = mint.RestClient().get_server_capabilities().result()

    assert answer.supported_models[0].model_name == "acme/tiny"
    assert {asked.key for asked in service.asked} == {"tml-sk-env"}


def test_a_server_without_a_key_names_the_variable():
    with pytest.raises(mint.ConfigError, match=r"http://host:1.*MINT_API_KEY"):
        mint.ServiceClient(base_url="http://host:1")


def test_with_the_embedded_server_turned_off_the_error_names_the_variables(monkeypatch):
    monkeypatch.setenv("MINT_EMBEDDED", "0")
    with pytest.raises(mint.ConfigError, match="MINT_BASE_URL and MINT_API_KEY"):
        mint.ServiceClient()


def test_no_telemetry_is_sent_unless_asked_for(service, monkeypatch):
    monkeypatch.delenv("TINKER_TELEMETRY")
    with mint.ServiceClient(base_url=service.url, api_key="sk-secret") as client:
        client.create_sampling_client(base_model="acme/tiny").result()
    assert not service.bodies("telemetry")


def test_telemetry_is_sent_when_asked_for(service, monkeypatch):
    monkeypatch.delenv("TINKER_TELEMETRY")
    monkeypatch.setenv("MINT_TELEMETRY", "1")
    with mint.ServiceClient(base_url=service.url, api_key="sk-secret") as client:
        client.create_sampling_client(base_model="acme/tiny").result()
    assert service.bodies("telemetry")


def test_an_explicit_upstream_telemetry_switch_is_left_as_it_is(service, monkeypatch):
    monkeypatch.setenv("MINT_TELEMETRY", "1")
    with mint.ServiceClient(base_url=service.url, api_key="sk-secret") as client:
        client.create_sampling_client(base_model="acme/tiny").result()
    assert not service.bodies("telemetry")


# ------------------------------------------------------- whose class it is


def test_whatever_the_clients_create_is_ours(client):
    training = [
        client.create_lora_training_client("acme/tiny").result(),
        client.create_training_client_from_state("tinker://a/weights/b").result(),
        client.create_training_client_from_state_with_optimizer("tinker://a/weights/b").result(),
    ]
    sampling = [
        client.create_sampling_client(base_model="acme/tiny").result(),
        client.create_sampling_client(model_path="tinker://a/sampler_weights/b").result(),
        training[0].create_sampling_client("tinker://a/sampler_weights/b").result(),
        training[0].save_weights_and_get_sampling_client().result(),
    ]

    assert {type(made) for made in training} == {mint.TrainingClient}
    assert {type(made) for made in sampling} == {mint.SamplingClient}
    assert type(client.create_rest_client()) is mint.RestClient
    assert isinstance(training[0], tinker.TrainingClient)
    assert isinstance(sampling[0], tinker.SamplingClient)


def test_whatever_the_async_variants_create_is_ours(client):
    async def create() -> list[Any]:
        training = await client.create_lora_training_client_async("acme/tiny")
        return [
            training,
            await client.create_training_client_from_state_async("tinker://a/weights/b"),
            await client.create_lora_training_client("acme/tiny"),
            await client.create_sampling_client_async(base_model="acme/tiny"),
            await training.create_sampling_client_async("tinker://a/sampler_weights/b"),
            await training.save_weights_and_get_sampling_client_async(),
            await training.save_weights_and_get_sampling_client(),
        ]

    made = asyncio.run(create())

    assert [type(one) for one in made] == [mint.TrainingClient] * 3 + [mint.SamplingClient] * 4


def test_a_future_used_as_the_client_reaches_ours(service, client):
    pending = client.create_sampling_client(base_model="acme/tiny")
    pending.sample(PROMPT, 1, mint.SamplingParams(stop_token_ids=[5])).result()
    assert service.bodies("asample")[0]["sampling_params"]["stop_token_ids"] == [5]


def test_a_sampling_client_stays_ours_through_pickle_and_handle(client):
    sampling = client.create_sampling_client(base_model="acme/tiny").result()
    assert type(pickle.loads(pickle.dumps(sampling))) is mint.SamplingClient
    copy = mint.SamplingClient.from_sampler_handle(sampling.get_sampler_handle(), api_key="sk-x")
    assert type(copy) is mint.SamplingClient


def test_a_checkpoint_path_may_begin_with_mint(service, client):
    client.create_sampling_client(model_path="mint://a/sampler_weights/b").result()
    assert service.bodies("create_sampling_session")[0]["model_path"] == (
        "tinker://a/sampler_weights/b"
    )


# --------------------------------------------------------- stop_token_ids


def test_stop_token_ids_arrive_beside_stop(service, client):
    sampling = client.create_sampling_client(base_model="acme/tiny").result()
    params = mint.types.SamplingParams(max_tokens=4, stop=["\n"], stop_token_ids=[5, 6])

    answer = sampling.sample(PROMPT, 1, params).result()

    sent = service.bodies("asample")[0]
    assert sent["sampling_params"]["stop_token_ids"] == [5, 6]
    assert sent["sampling_params"]["stop"] == ["\n"]
    assert answer.sequences[0].tokens == [7]


def test_a_request_differs_from_upstreams_in_nothing_but_stop_token_ids(service, client):
    sampling = client.create_sampling_client(base_model="acme/tiny").result()
    same = {"max_tokens": 4, "temperature": 0.5, "seed": 3}
    sampling.sample(PROMPT, 1, tinker.SamplingParams(**same), include_prompt_logprobs=True).result()
    sampling.sample(
        PROMPT, 1, mint.SamplingParams(**same, stop_token_ids=[5]), include_prompt_logprobs=True
    ).result()

    upstreams, ours = service.bodies("asample")
    assert ours["sampling_params"].pop("stop_token_ids") == [5]
    assert (upstreams.pop("seq_id"), ours.pop("seq_id")) == (0, 1)
    assert ours == upstreams


def test_parameters_of_upstreams_own_class_work(service, client):
    sampling = client.create_sampling_client(base_model="acme/tiny").result()
    sampling.sample(PROMPT, 1, tinker.SamplingParams(stop=[5])).result()
    assert service.bodies("asample")[0]["sampling_params"]["stop"] == [5]


def test_a_server_that_is_not_ours_gets_stop_token_ids_as_stop(service, client):
    service.ours = False
    sampling = client.create_sampling_client(base_model="acme/tiny").result()
    sampling.sample(PROMPT, 1, mint.SamplingParams(stop_token_ids=[5])).result()

    sent = service.bodies("asample")[0]["sampling_params"]
    assert sent["stop"] == [5]
    assert "stop_token_ids" not in sent


def test_a_server_that_is_not_ours_cannot_have_both_and_nothing_is_sent(service, client):
    service.ours = False
    sampling = client.create_sampling_client(base_model="acme/tiny").result()
    with pytest.raises(UnsupportedError, match="either stop or stop_token_ids"):
        sampling.sample(PROMPT, 1, mint.SamplingParams(stop="x", stop_token_ids=[5])).result()
    assert not service.bodies("asample")


def test_whether_a_server_is_ours_is_asked_once(service, client):
    sampling = client.create_sampling_client(base_model="acme/tiny").result()
    for _ in range(3):
        sampling.sample(PROMPT, 1, mint.SamplingParams(stop_token_ids=[5])).result()
    assert sum(path.endswith("/mint/server") for path in service.paths()) == 1


def test_a_server_of_ours_says_what_it_does_beyond_upstreams(service, client):
    assert client.server_extensions() == {"loss_temperature", "prompt_temperature"}


def test_a_server_that_is_not_ours_does_nothing_beyond_upstreams(service, client):
    service.ours = False
    assert client.server_extensions() == frozenset()


def test_any_other_field_is_refused_by_name():
    with pytest.raises(ValueError, match="stop_tokens"):
        mint.SamplingParams(stop_tokens=[5])  # pyright: ignore[reportCallIssue]


def test_a_negative_stop_token_id_is_refused():
    with pytest.raises(ValueError, match="stop_token_ids"):
        mint.SamplingParams(stop_token_ids=[-1])


def test_stop_token_ids_are_refused_where_the_sdk_would_drop_them(monkeypatch):
    monkeypatch.setattr("tinker.__version__", "0.22.0")
    assert mint.SamplingParams(stop=[5]).stop == [5]
    with pytest.raises(ValueError, match=r"0\.22\.0 has no way to send them"):
        mint.SamplingParams(stop_token_ids=[5])


def test_our_clients_are_those_for_the_sdk_that_is_installed(monkeypatch):
    # what they do there: tests/recipe/test_sdk_versions.py
    for installed, module in (("0.22.0", "older_sdk"), ("0.38.0", "compat"), ("1.0.0", "compat")):
        monkeypatch.setattr("tinker.__version__", installed)
        assert mint._home("mint.client.compat") == f"mint.client.{module}"


def test_closing_a_client_that_was_never_used_asks_nothing(service):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mint.ServiceClient(base_url=service.url, api_key="sk-secret").close("success").result()
    assert service.asked == []
