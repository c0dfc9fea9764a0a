"""mint checkpoints, import and export against a real server: what comes out computes what went in."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.torch_engine.test_adapter_import import written_by_peft

import mint
from mint import types
from mint.cli.main import main
from mint.client.settings import EMBEDDED_MODEL as MODEL
from mint.testing import tiny_model
from mint.testing.service import LocalService

pytestmark = pytest.mark.filterwarnings("ignore")  # peft's remarks on tied heads

TOKENS = list(b"ask: abcabcabc")


def a_datum() -> types.Datum:
    return types.Datum(
        model_input=types.ModelInput.from_ints(TOKENS[:-1]),
        loss_fn_inputs={"target_tokens": TOKENS[1:]},  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class Desk:
    """A terminal beside a running server."""

    service: LocalService
    base: Path
    run: Callable[..., Result]

    def client(self) -> mint.ServiceClient:
        return mint.ServiceClient(base_url=self.service.url, api_key=self.service.key)

    def paths(self) -> list[str]:
        listed = self.run("checkpoints", "list", "--json").stdout.splitlines()
        return [json.loads(line)["path"] for line in listed]


@pytest.fixture(scope="module")
def desk(shared_service: LocalService) -> Iterator[Desk]:
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("MINT_", "TINKER_")):
                patch.delenv(name)
        patch.setenv("TINKER_TELEMETRY", "0")
        for name, value in shared_service.environment().items():
            patch.setenv(name, value)

        def run(*arguments: object) -> Result:
            return CliRunner().invoke(main, [str(argument) for argument in arguments])

        yield Desk(shared_service, shared_service.data.parent / "models" / "tiny", run)


@pytest.fixture(scope="module")
def adapter(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter of peft's own making, of an alpha and of modules that ours never has."""
    return written_by_peft(
        desk.base, tmp_path_factory.mktemp("peft") / "styled", r=4, lora_alpha=10,
        target_modules=["q_proj", "lm_head"],
    )  # fmt: skip


@pytest.fixture(scope="module")
def imported(desk: Desk, adapter: Path) -> str:
    done = desk.run("import", adapter, "--base-model", MODEL, "--base", desk.base)
    assert done.exit_code == 0, done.output
    assert "verified: logprobs of" in done.stderr
    return done.stdout.strip()


def test_an_imported_adapter_can_be_sampled_and_trained_on(desk, imported):
    assert imported.endswith("/sampler_weights/styled")
    with desk.client() as service:
        sampler = service.create_sampling_client(model_path=imported).result()
        training = service.create_training_client_from_state(imported).result()
        datum = a_datum()
        passed = training.forward_backward([datum], "cross_entropy").result()
        training.optim_step(types.AdamParams(learning_rate=1e-3)).result()
        sampled = sampler.compute_logprobs(types.ModelInput.from_ints(TOKENS)).result()
    trained = passed.loss_fn_outputs[0]["logprobs"].tolist()
    assert trained == pytest.approx(sampled[1:], abs=1e-4)


@pytest.mark.parametrize("switches", [{"train_mlp": False}, {}])
def test_older_clients_make_a_model_first_and_load_the_adapter_into_it(desk, imported, switches):
    with desk.client() as service:
        training = service.create_lora_training_client(MODEL, rank=4, **switches).result()
        training.load_state(imported).result()
        ours = training.save_weights_and_get_sampling_client().result()
        theirs = service.create_sampling_client(model_path=imported).result()
        prompt = types.ModelInput.from_ints(TOKENS)
        found = [client.compute_logprobs(prompt).result()[1:] for client in (ours, theirs)]
    assert found[0] == pytest.approx(found[1], abs=1e-5)


def test_a_merged_model_is_verified_and_says_what_it_is(desk, imported, tmp_path):
    out = tmp_path / "merged"
    done = desk.run("export", imported, out, "--merged", "--base", desk.base)

    assert done.exit_code == 0, done.output
    note = json.loads((out / "export.json").read_text())
    assert (note["checkpoint"], note["base_model"]) == (imported, MODEL)
    verified = note["verification"]
    assert verified["max_gap"] < 1e-4 < 1e-2 < verified["adapter_moves_by"]
    for name, stamp in note["files"].items():
        assert (out / name).stat().st_size == stamp["size_bytes"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["merged"]


def test_an_exported_adapter_is_verified_in_peft(desk, imported, tmp_path):
    done = desk.run("export", imported, tmp_path / "out", "--base", desk.base)

    assert done.exit_code == 0, done.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "adapter_model.safetensors", "adapter_config.json", "export.json",
    }  # fmt: skip


def test_what_does_not_compute_the_same_is_removed_again(desk, adapter, imported, tmp_path):
    other = tiny_model(tmp_path / "models", "other", seed=9).folder
    before = desk.paths()

    refused = desk.run("export", imported, tmp_path / "out", "--merged", "--base", other)
    assert (refused.exit_code, "differ by up to" in refused.stderr) == (1, True)
    assert [path.name for path in tmp_path.iterdir()] == ["models"]

    refused = desk.run("import", adapter, "--base-model", MODEL, "--base", other)
    assert refused.exit_code == 1
    assert desk.paths() == before


def test_a_merge_whose_rounding_hides_the_adapter_is_refused(desk, tmp_path):
    faint = written_by_peft(desk.base, tmp_path / "faint", r=1, lora_alpha=1e-3,
                            target_modules=["q_proj"])  # fmt: skip
    path = desk.run("import", faint, "--base-model", MODEL, "--base", desk.base).stdout.strip()

    refused = desk.run(
        "export", path, tmp_path / "out", "--merged", "--dtype", "bfloat16", "--base", desk.base
    )

    assert refused.exit_code == 1
    assert "--dtype float32" in refused.stderr
    assert not (tmp_path / "out").exists()


def test_a_lora_of_another_kind_is_refused_before_anything_is_sent(desk, tmp_path):
    dora = written_by_peft(desk.base, tmp_path / "dora", r=2, lora_alpha=4, use_dora=True,
                           target_modules=["q_proj"])  # fmt: skip
    before = desk.paths()

    refused = desk.run("import", dora, "--base-model", MODEL, "--base", desk.base)

    assert (refused.exit_code, "use_dora" in refused.stderr) == (1, True)
    assert desk.paths() == before


def test_the_server_refuses_an_adapter_of_another_model_by_the_tensors_name(desk, tmp_path):
    wide = tiny_model(tmp_path / "models", "wide", hidden=16).folder
    adapter = written_by_peft(wide, tmp_path / "wide", r=2, lora_alpha=4,
                              target_modules=["q_proj"])  # fmt: skip
    refused = desk.run("import", adapter, "--base-model", MODEL, "--no-verify")

    assert refused.exit_code == 1
    assert "q_proj.lora_A.weight has shape [2, 16]" in refused.stderr


def test_a_training_checkpoint_comes_back_with_its_optimizer(desk, tmp_path):
    datum = a_datum()

    def step(training: mint.TrainingClient) -> None:
        training.forward_backward([datum], "cross_entropy").result()
        training.optim_step(types.AdamParams(learning_rate=1e-2)).result()

    with desk.client() as service:
        first = service.create_lora_training_client(MODEL, rank=4, seed=1).result()
        step(first)
        saved = first.save_state("one").result().path
        assert desk.run("checkpoints", "download", saved, tmp_path / "one").exit_code == 0
        pushed = desk.run("checkpoints", "push", tmp_path / "one").stdout.strip()
        assert pushed.endswith("/weights/one")
        second = service.create_training_client_from_state_with_optimizer(pushed).result()
        step(first)
        step(second)
        scored = [
            training.forward([datum], "cross_entropy").result().loss_fn_outputs[0]["logprobs"]
            for training in (first, second)
        ]
    assert scored[0].tolist() == scored[1].tolist()


def test_a_file_that_was_changed_on_the_way_is_not_taken_for_a_checkpoint(desk, imported, tmp_path):
    assert desk.run("checkpoints", "download", imported, tmp_path / "a").exit_code == 0
    config = json.loads((tmp_path / "a" / "adapter_config.json").read_text())
    (tmp_path / "a" / "adapter_config.json").write_text(json.dumps(config | {"r": 5}))

    refused = desk.run("checkpoints", "push", tmp_path / "a")

    assert refused.exit_code == 1
    assert "has shape" in refused.stderr


def test_a_checkpoint_is_listed_shown_and_deleted_by_its_short_id(desk, adapter):
    path = desk.run("import", adapter, "--base-model", MODEL, "--name", "gone", "--no-verify")
    listed = desk.run("checkpoints", "list").stdout.splitlines()
    [row] = [line for line in listed if line.endswith("/gone")]
    short = row.split()[0]

    assert json.loads(desk.run("checkpoints", "info", short).stdout)["path"] == path.stdout.strip()
    asked = [desk.run("sample", "--checkpoint", name, "--temperature", "0", "--max-tokens", "4", "hi")
             for name in (short, path.stdout.strip())]  # fmt: skip
    assert [answer.exit_code for answer in asked] == [0, 0]
    assert asked[0].stdout == asked[1].stdout
    assert desk.run("checkpoints", "delete", short, "--yes").exit_code == 0
    gone = desk.run("checkpoints", "info", short)
    assert (gone.exit_code, short in gone.stderr) == (1, True)


def test_a_folder_that_exists_is_never_written_to(desk, imported, tmp_path):
    for arguments in (
        ["checkpoints", "download", imported, tmp_path],
        ["export", imported, tmp_path],
    ):
        refused = desk.run(*arguments, *(["--base", desk.base] if arguments[0] == "export" else []))
        assert (refused.exit_code, "exists already" in refused.stderr) == (1, True)
    assert list(tmp_path.iterdir()) == []
