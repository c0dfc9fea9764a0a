"""What the SDK's REST client, command line and pickled clients ask for."""

import os
import pickle
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import tinker
from tests.protocol.conftest import MODEL
from tinker import types

from mint.testing import LocalService

PROMPT = types.ModelInput.from_ints([72, 101, 108, 108, 111])
ONE_TOKEN = types.SamplingParams(max_tokens=1)


@pytest.fixture(scope="module")
def training(client: tinker.ServiceClient) -> tinker.TrainingClient:
    return client.create_lora_training_client(base_model=MODEL, rank=4, seed=1).result()


@pytest.fixture(scope="module")
def sampler(client: tinker.ServiceClient) -> tinker.SamplingClient:
    return client.create_sampling_client(base_model=MODEL).result()


def test_external_weights_are_fetched_file_by_file_without_a_key(
    training: tinker.TrainingClient, rest: tinker.RestClient
):
    path = training.save_weights_external("taken").result().path

    urls = rest.get_external_weights_urls(path).result().urls
    config = urllib.request.urlopen(urls["adapter_config.json"]).read()

    assert path.endswith("/external_weights/taken")
    assert set(urls) == {"adapter_model.safetensors", "adapter_config.json", "manifest.json"}
    assert b'"peft_type": "LORA"' in config
    with pytest.raises(tinker.BadRequestError, match="tokens are not offered"):
        rest.copy_weights(path, "p", weights_access_token="t").result()


def test_the_sdks_command_line_downloads_a_training_checkpoint(
    training: tinker.TrainingClient, server: LocalService, tmp_path: Path
):
    path = training.save_state("wanted").result().path

    done = subprocess.run(
        [Path(sys.executable).with_name("tinker"), "checkpoint", "download", path, "-o", tmp_path],
        env=os.environ
        | {
            "TINKER_BASE_URL": server.url,
            "TINKER_API_KEY": f"tml-{server.key}",
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    [weights] = tmp_path.rglob("adapter_model.safetensors")
    assert weights.stat().st_size > 1000


def test_a_copy_can_be_sampled_from_when_its_source_is_gone(
    client: tinker.ServiceClient, training: tinker.TrainingClient, rest: tinker.RestClient
):
    source = training.save_weights_for_sampler("source").result().path
    assert source
    before = client.create_sampling_client(model_path=source).result()
    expected = before.compute_logprobs(PROMPT).result()

    copied = rest.copy_weights(source, "atlas").result()
    rest.delete_checkpoint_from_tinker_path(source).result()

    sampler = client.create_sampling_client(model_path=copied).result()
    assert sampler.compute_logprobs(PROMPT).result() == pytest.approx(expected, abs=1e-5)


def test_copies_of_a_sampling_client_draw_side_by_side(sampler: tinker.SamplingClient):
    first, second = (pickle.loads(pickle.dumps(sampler)) for _ in range(2))

    ids = {
        one.sample(PROMPT, num_samples=1, sampling_params=ONE_TOKEN)
        .result()
        .sequences[0]
        .sequence_id
        for one in (sampler, first, second)
    }

    assert len(ids) == 3


def test_prompt_positions_are_asked_about_in_every_way(sampler: tinker.SamplingClient):
    targets = np.array([[101, 7], [108, 7], [108, -1], [111, 7]])

    answer = sampler.sample(
        PROMPT,
        num_samples=1,
        sampling_params=ONE_TOKEN,
        include_prompt_logprobs=True,
        prompt_logprobs_last_n=2,
        target_prompt_logprobs=types.TensorData.from_numpy(targets),
        prompt_alt_tokens_k=3,
    ).result()

    assert answer.prompt_logprobs is not None
    assert answer.prompt_logprobs[:3] == [None] * 3
    assert answer.target_prompt_logprobs is not None
    scored = answer.target_prompt_logprobs.to_numpy()
    assert scored[2:, 0].tolist() == pytest.approx(answer.prompt_logprobs[3:], abs=1e-5)
    assert scored[2, 1] == 0
    assert answer.prompt_alt_tokens is not None
    assert answer.prompt_alt_tokens.tokens.shape == [4, 3]


def test_what_is_not_supported_fails_at_once_and_says_so(
    training: tinker.TrainingClient, rest: tinker.RestClient, server: LocalService
):
    admin = tinker.AdminClient(base_url=server.url, api_key=f"tml-{server.key}")
    session = training.model_id.split(":")[0]

    with pytest.raises(tinker.BadRequestError, match="not supported"):
        admin.get_audit_log().result()
    with pytest.raises(RuntimeError, match="not supported"):
        rest.export_session_trace(session).result()
    with pytest.raises(tinker.RequestFailedError, match="no encrypted checkpoints"):
        training.save_weights_external("secret", age_encryption_recipients=["age1x"]).result()
