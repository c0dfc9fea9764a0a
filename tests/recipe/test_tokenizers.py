"""A tokenizer by its model's name: who is asked, in which order, and what is said if nobody has it."""

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.recipe.renderers.families import FastTokenizer
from tests.recipe.tokens import ByteTokenizer

from mint.client.settings import EMBEDDED_MODEL
from mint.recipe import tokenizers
from mint.recipe.exceptions import ConfigurationError
from mint.recipe.rl.types import EnvGroupBuilder
from mint.recipe.tokenizers import (
    get_registered_tokenizer_names,
    get_tokenizer,
    has_chat_template,
    is_tokenizer_registered,
    model_file,
    provide_from,
    register_tokenizer,
    unregister_tokenizer,
)
from mint.testing import LocalService


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """No tokenizer of another test, no hub, no server, no cache."""
    monkeypatch.setattr(tokenizers, "_made", {})
    monkeypatch.setattr(tokenizers, "_factories", {})
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    for name in ("MINT_BASE_URL", "MINT_API_KEY", "TINKER_BASE_URL", "TINKER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MINT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MINT_EMBEDDED", "0")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tokenizer on disk, in the form in which models are published."""
    return save(tmp_path / "model")


def save(folder: Path) -> Path:
    folder.mkdir(parents=True)
    FastTokenizer().backend_tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}'
    )
    (folder / "config.json").write_text('{"hidden_size": 64}')
    return folder


def in_hub_cache(tmp_path: Path, name: str) -> Path:
    """The same, where the hub's own client keeps what it has fetched."""
    repository = tmp_path / "hub" / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    return save(repository / "snapshots" / "abc")


def test_a_registered_tokenizer_is_made_once():
    register_tokenizer("acme/bytes", ByteTokenizer)

    first = get_tokenizer("acme/bytes")

    assert isinstance(first, ByteTokenizer)
    assert get_tokenizer("acme/bytes") is first
    assert is_tokenizer_registered("acme/bytes")
    assert get_registered_tokenizer_names() == ["acme/bytes"]


def test_threads_that_ask_at_once_get_one_tokenizer():
    made = []
    register_tokenizer("acme/bytes", lambda: made.append(1) or ByteTokenizer())
    start = threading.Barrier(8)
    got = []

    def ask() -> None:
        start.wait()
        got.append(get_tokenizer("acme/bytes"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert len({id(one) for one in got}) == 1


def test_a_factory_may_ask_for_another_tokenizer():
    register_tokenizer("acme/bytes", ByteTokenizer)
    register_tokenizer("acme/same", lambda: get_tokenizer("acme/bytes"))
    assert get_tokenizer("acme/same") is get_tokenizer("acme/bytes")


def test_registering_anew_replaces_and_unregistering_forgets(folder: Path):
    name = str(folder)
    on_disk = get_tokenizer(name)
    register_tokenizer(name, ByteTokenizer)
    assert isinstance(get_tokenizer(name), ByteTokenizer)
    assert unregister_tokenizer(name)
    assert type(get_tokenizer(name)) is type(on_disk)
    assert not unregister_tokenizer(name)


def test_a_folder_is_read_as_it_is(folder: Path):
    tokenizer = get_tokenizer(str(folder))
    assert tokenizer.encode("as<|im_end|>") == FastTokenizer().encode("as<|im_end|>")
    assert get_tokenizer(str(folder)) is tokenizer


def test_what_the_hubs_client_fetched_before_is_found_without_the_hub(tmp_path: Path):
    in_hub_cache(tmp_path, "acme/cached")
    assert get_tokenizer("acme/cached").encode("as") == FastTokenizer().encode("as")


def test_a_serving_variant_has_the_models_tokenizer(tmp_path: Path):
    in_hub_cache(tmp_path, "acme/cached")
    assert get_tokenizer("acme/cached:fast:eu").encode("as") == FastTokenizer().encode("as")


def test_nobody_having_it_names_the_model_and_three_ways_to_give_it():
    with pytest.raises(ConfigurationError) as refused:
        get_tokenizer("acme/none")
    text = str(refused.value)
    for part in ("'acme/none'", "register_tokenizer", "tokenizer.json", "MINT_BASE_URL"):
        assert part in text


def test_a_failure_is_not_remembered(tmp_path: Path):
    with pytest.raises(ConfigurationError):
        get_tokenizer("acme/late")
    in_hub_cache(tmp_path, "acme/late")
    assert get_tokenizer("acme/late") is not None


# ---------------------------------------------------------- from the service


def test_a_clients_tokenizer_is_known_by_its_models_name_from_then_on():
    own = ByteTokenizer()
    client = SimpleNamespace(get_tokenizer=lambda: own)
    assert provide_from(client, "acme/served") is own
    assert get_tokenizer("acme/served") is own


def test_a_client_without_a_tokenizer_leaves_its_model_unknown():
    class Client:
        def get_tokenizer(self) -> None:
            return None

    provide_from(Client(), "acme/nobody")
    assert has_chat_template("acme/nobody") is None


def test_a_client_is_not_asked_for_what_is_registered_or_here(folder: Path):
    client = SimpleNamespace()  # it would raise
    register_tokenizer("acme/bytes", ByteTokenizer)
    assert isinstance(provide_from(client, "acme/bytes"), ByteTokenizer)
    assert provide_from(client, str(folder)) is get_tokenizer(str(folder))


@pytest.fixture
def served(shared_service: LocalService, monkeypatch: pytest.MonkeyPatch) -> LocalService:
    """A real server whose base model has the embedded model's name, and no hub."""
    monkeypatch.setenv("MINT_BASE_URL", shared_service.url)
    monkeypatch.setenv("MINT_API_KEY", shared_service.key)
    return shared_service


async def test_an_env_finds_the_served_models_tokenizer_without_a_hub(served):
    class Builder(EnvGroupBuilder):
        async def make_envs(self):
            return [get_tokenizer(EMBEDDED_MODEL)]

    (tokenizer,) = await Builder().make_envs()

    assert tokenizer.decode(tokenizer.encode("2 + 2?")) == "2 + 2?"
    assert model_file(EMBEDDED_MODEL, "config.json")["model_type"]
    assert model_file(EMBEDDED_MODEL, "no.json") is None


def test_a_model_that_the_server_does_not_have_is_told_in_its_words(served):
    with pytest.raises(ConfigurationError, match=r"The server: .*acme/none"):
        get_tokenizer("acme/none")


# ------------------------------------------------------------------- templates


def test_whether_there_is_a_chat_template_is_found_without_loading_anything(
    folder: Path, tmp_path: Path
):
    assert has_chat_template("acme/none") is None
    assert has_chat_template(str(folder)) is False
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert has_chat_template(str(folder)) is True
    cached = in_hub_cache(tmp_path, "acme/cached")
    (cached / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    assert has_chat_template("acme/cached") is True
    assert tokenizers._made == {}
    register_tokenizer("acme/bytes", lambda: ByteTokenizer(chat_template="{{ messages }}"))
    assert has_chat_template("acme/bytes") is True
