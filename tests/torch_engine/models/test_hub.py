"""Models from the hub: fetched once and only as far as needed; a silent hub is said at once."""

import json

import pytest

from mint.core.errors import UnknownModelError, UnsupportedError
from mint.torch_engine.models.hub import Hub, is_repo
from mint.torch_engine.models.registry import ModelRegistry
from mint.torch_engine.models.tiny import build_tiny

NAME = "acme/tiny-chat"


@pytest.fixture
def repo(tmp_path):
    """A model as it lies on the hub, with more beside it than we need."""
    folder = build_tiny(tmp_path / "repo")
    (folder / "pytorch_model.bin").write_bytes(b"the same weights again")
    (folder / "README.md").write_text("hello")
    return folder


def test_a_model_is_fetched_without_other_formats_and_then_found_in_the_cache(
    tmp_path, repo, fake_hub
):
    with fake_hub({NAME: repo}) as server:
        hub = Hub(endpoint=server.url, cache=tmp_path / "hub")
        fetched = ModelRegistry([NAME], hub=hub).resolve(NAME)
        asked = set(server.sent)
    cached = ModelRegistry([NAME], hub=hub).resolve(NAME)  # the server is gone by now

    assert (fetched.origin, cached.origin) == ("hub", "hub cache")
    assert fetched.folder == cached.folder
    assert asked == {
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
        "tokenizer_config.json",
    }  # fmt: skip
    weights = (cached.folder / "model.safetensors").read_bytes()
    assert weights == (repo / "model.safetensors").read_bytes()


def test_a_half_fetched_model_in_the_cache_is_not_taken_for_a_whole_one(tmp_path, repo, fake_hub):
    hub = Hub(endpoint="http://127.0.0.1:9", cache=tmp_path / "hub")
    with fake_hub({NAME: repo}) as server:
        Hub(endpoint=server.url, cache=hub.cache).fetch(NAME)
    whole = hub.cached(NAME)
    assert whole is not None

    (whole / "tokenizer.json").unlink()

    assert hub.cached(NAME) is None
    with pytest.raises(UnknownModelError, match="only a part of it is in the hub's cache"):
        ModelRegistry([NAME], hub=hub).check()


def test_a_model_we_would_refuse_costs_no_weights(tmp_path, repo, fake_hub):
    config = json.loads((repo / "config.json").read_text())
    (repo / "config.json").write_text(json.dumps(config | {"model_type": "mamba"}))

    with fake_hub({NAME: repo}) as server:
        with pytest.raises(UnsupportedError, match="mamba"):
            Hub(endpoint=server.url, cache=tmp_path / "hub").fetch(NAME)
        assert server.sent == ["config.json"]


def test_a_repository_without_safetensors_is_refused_before_anything_is_fetched(
    tmp_path, repo, fake_hub
):
    (repo / "model.safetensors").unlink()

    with fake_hub({NAME: repo}) as server:
        with pytest.raises(UnknownModelError, match="no weights in safetensors"):
            Hub(endpoint=server.url, cache=tmp_path / "hub").fetch(NAME)
        assert server.sent == []


def test_a_name_the_hub_does_not_know_is_refused(tmp_path, repo, fake_hub):
    with (
        fake_hub({NAME: repo}) as server,
        pytest.raises(UnknownModelError, match="no such model there"),
    ):
        Hub(endpoint=server.url, cache=tmp_path / "hub").fetch("acme/other")


def test_offline_mode_is_respected(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    with pytest.raises(UnknownModelError, match="HF_HUB_OFFLINE"):
        Hub(cache=tmp_path).fetch(NAME)


def test_an_error_lists_what_the_cache_has(tmp_path, repo, fake_hub):
    hub = Hub(endpoint="http://127.0.0.1:9", cache=tmp_path / "hub")
    with fake_hub({NAME: repo}) as server:
        Hub(endpoint=server.url, cache=hub.cache).fetch(NAME)

    with pytest.raises(UnknownModelError, match=f"Available now without a network: .*{NAME}"):
        ModelRegistry(["acme/other"], hub=hub).check()


@pytest.mark.parametrize(
    ("name", "possible"),
    [(NAME, True), ("Qwen/Qwen2.5-0.5B", True), ("tiny", False), ("../x", False), ("/a/b", False),
     ("a/b/c", False), ("a/..", False)],
)  # fmt: skip
def test_only_an_organisation_and_a_model_make_a_hub_name(name, possible):
    assert is_repo(name) is possible
