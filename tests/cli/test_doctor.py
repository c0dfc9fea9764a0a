"""mint doctor looks at a real server, and its verdict can be no."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

import mint
from mint.cli.main import main
from mint.cli.parity import Gap, Parity, _datum
from mint.testing import LocalService


def asked(service: LocalService, *arguments: str):
    environment = {"MINT_BASE_URL": service.url, "MINT_API_KEY": service.key}
    environment["MINT_HOME"] = str(service.home)
    return CliRunner().invoke(main, ["doctor", *arguments], env=environment)


def test_it_says_what_is_installed_and_what_the_server_computes_with(shared_service):
    shown = asked(shared_service)

    assert shown.exit_code == 0, shown.output
    lines = {line.split()[1]: line for line in shown.output.splitlines()}
    assert f"ok   server    {shared_service.url} answers: mint " in lines["server"]
    assert "ok   compute   cpu, float32, 1 CPU threads; memory " in lines["compute"]
    assert lines["models"].endswith(shared_service.model)
    assert "tinker " in lines["versions"]


def test_parity_of_a_new_adapter(shared_service):
    told: dict[str, Any] = json.loads(asked(shared_service, "--parity", "--json").stdout)
    parity = told["parity"]

    assert told["ok"]
    assert parity["is_clean"]
    assert [(gap["between"], gap["temperature"]) for gap in parity["gaps"]] == [
        ("trainer and sampler", 1.0), ("prefill and sampler", 1.0), ("trainer and prefill", 1.0),
        ("trainer and sampler", 0.7),
    ]  # fmt: skip
    assert all(gap["tokens"] > 24 and gap["max"] < 1e-4 for gap in parity["gaps"])
    assert parity["adapter_moves_by"] > 1e-2


def test_parity_of_a_saved_checkpoint_and_of_one_that_does_nothing(shared_service):
    with mint.ServiceClient(base_url=shared_service.url, api_key=shared_service.key) as client:
        training = client.create_lora_training_client(shared_service.model, rank=4).result()
        new = training.save_state("new").result().path
        data = [_datum([1, 2, 3, 4, 5])]
        training.forward_backward(data, "cross_entropy").result()
        training.optim_step(mint.AdamParams(learning_rate=0.05)).result()
        trained = training.save_state("trained").result().path

    good = asked(shared_service, "--parity", "--checkpoint", trained)
    idle = asked(shared_service, "--parity", "--checkpoint", new)

    assert good.exit_code == 0, good.output
    assert f"parity of {trained}, gaps in nats:" in good.output
    assert "trainer and sampler agree: largest gap" in good.output
    assert idle.exit_code == 1
    assert "says nothing about it. Give a checkpoint that was trained." in idle.output


def test_a_server_that_does_not_answer_is_a_finding_and_exit_status_1(tmp_path):
    environment = {"MINT_BASE_URL": "http://127.0.0.1:9", "MINT_API_KEY": "sk-x"}
    shown = CliRunner().invoke(main, ["doctor"], env={**environment, "MINT_HOME": str(tmp_path)})

    assert shown.exit_code == 1
    assert "BAD  server    no server answers at http://127.0.0.1:9" in shown.output


def parity(**changes: Any) -> Parity:
    gap = Gap.of("trainer and sampler", 1.0, [-1.0, -2.0], [-1.0, changes.pop("said", -2.0)])
    told = {"adapter_moves_by": 0.1, **changes}
    return Parity(model="m", checkpoint=None, dtype="float32", gaps=[gap], tolerance=2e-3, **told)


@pytest.mark.parametrize(
    ("changes", "is_clean", "verdict"),
    [
        ({}, True, "agree"),
        ({"said": -2.01}, False, "DIFFER: largest gap 0.01 "),
        ({"said": float("nan")}, False, "DIFFER: largest gap nan"),
        ({"adapter_moves_by": 0.0}, False, "says nothing about it"),
    ],
)
def test_the_verdict_follows_the_largest_gap_and_whether_the_adapter_acts(
    changes, is_clean, verdict
):
    found = parity(**changes)

    assert found.is_clean == is_clean
    assert verdict in found.verdict
