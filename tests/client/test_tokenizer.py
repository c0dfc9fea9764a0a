"""Tokenizers handed out by a server: cached once, checked always."""

import os
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

import mint
from mint.client.connect import Connection
from mint.client.local_server import LocalServer
from mint.client.settings import EMBEDDED_MODEL
from mint.client.tokenizer import folder_for, load
from mint.core.errors import ServerFaultError
from mint.mint import tokenizer_folder


@pytest.fixture
def served(service, tmp_path: Path):
    """The stub, handing out a tokenizer of three words."""
    made = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    service.files = {
        "tokenizer.json": made.to_str().encode(),
        "tokenizer_config.json": b'{"tokenizer_class": "PreTrainedTokenizerFast"}',
    }
    return service


def connection(service) -> Connection:
    return Connection(service.url, "tml-sk-x")


def fetched(service) -> list[str]:
    return [path.rpartition("/")[2] for path in service.paths() if "/tokenizer/" in path]


def test_both_clients_give_the_servers_tokenizer(served):
    with mint.ServiceClient(base_url=served.url, api_key="sk-x") as client:
        training = client.create_lora_training_client("acme/tiny").result()
        sampling = client.create_sampling_client(base_model="acme/tiny").result()

        assert training.get_tokenizer().encode("b a") == [1, 0]
        assert sampling.get_tokenizer().decode([0, 1]) == "a b"

    asked = [a for a in served.asked if "tokenizer" in a.path]
    assert {a.key for a in asked} == {"tml-sk-x"}
    assert {a.query["model"][0] for a in asked} == {"acme/tiny"}


def test_files_are_fetched_once_and_then_taken_from_the_cache(served, tmp_path: Path):
    first = folder_for(connection(served), "m", tmp_path)
    second = folder_for(connection(served), "m", tmp_path)

    assert first is not None
    assert first == second
    assert fetched(served) == ["tokenizer.json", "tokenizer_config.json"]
    assert [entry.name for entry in (tmp_path / "tokenizers").iterdir()] == [first.name]


def test_a_changed_tokenizer_gets_a_folder_of_its_own(served, tmp_path: Path):
    first = folder_for(connection(served), "m", tmp_path)
    served.files["tokenizer_config.json"] = b'{"tokenizer_class": "PreTrainedTokenizerFast" }'
    assert folder_for(connection(served), "m", tmp_path) != first


def test_a_damaged_cache_is_fetched_anew(served, tmp_path: Path):
    folder = folder_for(connection(served), "m", tmp_path)
    assert folder is not None
    (folder / "tokenizer.json").write_text("{")

    assert folder_for(connection(served), "m", tmp_path) == folder
    assert (folder / "tokenizer.json").read_bytes() == served.files["tokenizer.json"]


def test_a_file_that_is_not_what_was_announced_is_refused_and_not_kept(served, tmp_path: Path):
    served.announced = [{"name": "tokenizer.json", "size_bytes": 3, "sha256": "0" * 64}]
    with pytest.raises(ServerFaultError, match="announced 3 with 0000"):
        folder_for(connection(served), "m", tmp_path)
    assert list((tmp_path / "tokenizers").iterdir()) == []


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "a/b", "..", "", ".hidden", "a\\b"])
def test_a_name_that_is_not_a_plain_file_name_is_refused(served, tmp_path: Path, name: str):
    served.announced = [{"name": name, "size_bytes": 1, "sha256": "0" * 64}]
    with pytest.raises(ServerFaultError, match="names a file we refuse"):
        folder_for(connection(served), "m", tmp_path)
    assert fetched(served) == []


def test_an_absurd_size_is_refused_before_anything_is_fetched(served, tmp_path: Path):
    served.announced = [{"name": "tokenizer.json", "size_bytes": 2**40, "sha256": "0" * 64}]
    with pytest.raises(ServerFaultError, match="announces 1 files of"):
        folder_for(connection(served), "m", tmp_path)
    assert fetched(served) == []


def test_a_server_that_is_not_ours_leaves_it_to_upstream(served, monkeypatch):
    served.ours = False
    # upstream's way is the hub; answer for it, so that no network is needed
    monkeypatch.setattr(
        "transformers.models.auto.tokenization_auto.AutoTokenizer.from_pretrained",
        lambda name, **_: f"hub:{name}",
    )
    with mint.ServiceClient(base_url=served.url, api_key="sk-x") as client:
        sampling = client.create_sampling_client(base_model="acme/tiny").result()
        assert sampling.get_tokenizer() == "hub:acme/tiny"


def test_a_loaded_tokenizer_is_reused(served, tmp_path: Path):
    folder = folder_for(connection(served), "m", tmp_path)
    assert folder is not None
    assert load(folder) is load(folder)


# ------------------------------------------------------------ without a client


@pytest.fixture
def configured(served, monkeypatch):
    monkeypatch.setenv("MINT_BASE_URL", served.url)
    monkeypatch.setenv("MINT_API_KEY", "sk-env")
    return served


def test_the_configured_servers_files_are_had_without_a_client(configured):
    folder = tokenizer_folder("acme/tiny")

    assert folder is not None
    assert load(folder).encode("b a") == [1, 0]
    assert {asked.key for asked in configured.asked} == {"tml-sk-env"}
    assert not [path for path in configured.paths() if "session" in path]


def test_a_server_that_is_not_ours_has_no_files(configured):
    configured.ours = False
    assert tokenizer_folder("acme/tiny") is None


def test_no_server_is_started_for_a_model_that_it_was_not_set_up_with(monkeypatch):
    monkeypatch.setattr("mint.client.embedded.join_or_start", lambda settings: 1 / 0)
    assert tokenizer_folder("acme/tiny") is None
    with pytest.raises(ZeroDivisionError):
        tokenizer_folder(EMBEDDED_MODEL)
    monkeypatch.setenv("MINT_EMBEDDED", "0")
    assert tokenizer_folder(EMBEDDED_MODEL) is None


def test_an_embedded_server_that_runs_is_asked_for_any_model(served, monkeypatch):
    server = LocalServer(served.url, os.getpid(), "sk-local", Path("/nonexistent"))
    monkeypatch.setattr("mint.client.local_server.recorded", lambda home: server)
    monkeypatch.setattr("mint.client.embedded.join_or_start", lambda settings: server)

    assert tokenizer_folder("acme/tiny") is not None
    assert {asked.key for asked in served.asked} == {"tml-sk-local"}
