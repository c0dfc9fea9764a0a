"""Scripts of a newcomer, as they are, against a real server with a tiny model."""

import re
from pathlib import Path

import pytest
from tests.rl_core.world import rows, run_script

import mint
from mint.recipe.exceptions import ConfigurationError
from mint.recipe.rl.diagnosis import examine_run
from mint.rl_core import RLAdapter, RLConfig, run_grpo
from mint.testing import LocalService

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))


@pytest.fixture
def client(shared_service: LocalService):
    connected = mint.ServiceClient(base_url=shared_service.url, api_key=shared_service.key)
    yield connected
    connected.close("success").result()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_short_script_trains(
    script: Path, shared_service: LocalService, client: mint.ServiceClient, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):  # fmt: skip
    settings = shared_service.environment(
        MINT_RL_STEPS="2", MINT_RL_BATCH="2", MINT_RL_GROUP="4", MINT_LORA_RANK="4"
    )

    run_script(script, tmp_path, settings)

    first, one, two, last = capsys.readouterr().out.splitlines()
    assert re.fullmatch(rf"Model: {shared_service.model}, Vocab: [\d,]+", first)
    assert re.fullmatch(r"Step 1: accuracy=\d+\.\d%, datums=\d+", one)
    assert re.fullmatch(r"Step 2: accuracy=\d+\.\d%, datums=\d+", two)
    [folder] = (tmp_path / "runs").iterdir()
    written = rows(folder)
    assert sum(row["health/datums"] for row in written) > 0
    assert all(row.get("optim/kl_sample_train_v2", 0.0) < 1e-6 for row in written)  # on-policy
    assert len(examine_run(folder).steps) == 2
    path = last.removeprefix("Saved: ")
    sampler = client.create_sampling_client(model_path=path).result()
    prompt = mint.types.ModelInput.from_ints([1, 2, 3])
    params = mint.types.SamplingParams(max_tokens=2)
    answer = sampler.sample(prompt=prompt, num_samples=1, sampling_params=params).result()
    assert len(answer.sequences[0].tokens) > 0


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_it_has_no_more_than_25_lines(script: Path):
    assert len(script.read_text().splitlines()) <= 25


class Content(RLAdapter):
    def __call__(self, prompt: mint.types.ModelInput, response: mint.types.ModelInput) -> float:
        return 1.0


def test_a_model_that_a_real_server_has_not_is_refused_with_those_that_it_has(
    client: mint.ServiceClient, shared_service: LocalService, tmp_path: Path
):
    cfg = RLConfig(model="Qwen/Qwen3-0.6B", log_path=str(tmp_path))

    with pytest.raises(
        ConfigurationError, match=f"It offers {shared_service.model}: give RLConfig"
    ):
        run_grpo(Content(), cfg, prompts=["a"], service_client=client)
