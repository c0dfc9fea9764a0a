"""Several base models in one server, as a client meets them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import mint
from mint import types
from mint.testing import tiny_model
from mint.testing.service import LocalService, local_service

LIMIT_GIB = 0.02


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bases")


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[LocalService]:
    """Two that fit beside each other, and one that fits nowhere."""
    second = tiny_model(folder / "more", "second", family="qwen3", seed=2)
    large = tiny_model(folder / "more", "large", hidden=512, intermediate=2048, layers=2)
    options = ("--model", second.spec, "--model", large.spec, "--memory-limit-gib", str(LIMIT_GIB))
    with local_service(folder, model="first", options=options) as running:
        yield running


def test_each_base_model_is_loaded_on_its_first_use_and_one_that_cannot_fit_says_so_in_numbers(
    service, folder, monkeypatch
):
    monkeypatch.setenv("MINT_HOME", str(service.home))
    prompt = types.ModelInput.from_ints([1, 2, 3])
    params = types.SamplingParams(max_tokens=3, temperature=0)

    def loaded() -> list[str]:
        lines = (folder / "server.log").read_text().splitlines()
        return [line.split("loading base model ")[1].split()[0] for line in lines
                if "loading base model " in line]  # fmt: skip

    with mint.ServiceClient(base_url=service.url, api_key=service.key) as client:
        assert loaded() == []
        answers = []
        for name in ("second", "first", "second"):
            sampler = client.create_sampling_client(base_model=name).result()
            [sequence] = sampler.sample(prompt, 1, params).result().sequences
            answers.append(sequence.tokens)
        assert loaded() == ["second", "first"]
        assert answers[0] == answers[2] != answers[1]

        with pytest.raises(mint.RequestFailedError) as refused:
            client.create_lora_training_client("large", rank=4).result()
        assert "large needs" in refused.value.message
        assert f"of {LIMIT_GIB:.2f} GiB" in refused.value.message

        sampler = client.create_sampling_client(base_model="first").result()
        assert sampler.sample(prompt, 1, params).result().sequences[0].tokens == answers[1]
