"""Base models by name, found on demand where the server does that."""

import asyncio
from pathlib import Path

import pytest
from tests.server.rows import ANNE
from tests.server.still_link import StillLink

from mint.core.errors import Fault, OverloadedError, UnknownModelError
from mint.core.models import ServedModel
from mint.core.operations import Done, Failure, ResolveModel
from mint.server.service import models
from mint.server.service.models import ModelCatalog
from mint.server.service.submission import Submissions
from mint.server.store.store import Store
from mint.wire import payloads


def a_served(name: str, folder: Path = Path("/nowhere")) -> ServedModel:
    return ServedModel(
        name=name, architecture="llama", vocab_size=10, max_context=8, parameters=1,
        dtype="float32", device="cpu", tokenizer_folder=str(folder),
    )  # fmt: skip


def a_catalog(store: Store, link: StillLink, *, on_demand: bool) -> ModelCatalog:
    return ModelCatalog(store, link, Submissions(store, link), on_demand=on_demand)


def test_a_served_model_is_found_without_asking_the_engine(store: Store, link: StillLink):
    store.set_served([a_served("a"), a_served("b")])

    found = asyncio.run(a_catalog(store, link, on_demand=True).find(ANNE, "b"))

    assert found.name == "b"
    assert store.pending() == []


def test_an_unserved_model_is_refused_with_the_served_ones(store: Store, link: StillLink):
    store.set_served([a_served("a"), a_served("b")])

    with pytest.raises(UnknownModelError, match=r"'c' is not served here\. Available: a, b"):
        asyncio.run(a_catalog(store, link, on_demand=False).find(ANNE, "c"))


def resolving(store: Store, link: StillLink, outcome: ServedModel | Failure) -> None:
    """Play the engine process: look for models as they are asked for."""

    def look() -> None:
        for operation_id, kind, payload in store.take(
            [row.operation_id for row in store.pending()]
        ):
            assert isinstance(payloads.decode(kind, payload), ResolveModel)
            if isinstance(outcome, Failure):
                store.finish(operation_id, None, outcome)
            else:
                store.add_served(outcome)
                store.finish(operation_id, payloads.encode_result(Done()))
            link.announce([operation_id])

    link.on_wake = look


def test_an_unlisted_model_is_looked_for_on_demand(store: Store, link: StillLink):
    resolving(store, link, a_served("new"))

    found = asyncio.run(a_catalog(store, link, on_demand=True).find(ANNE, "new"))

    assert found.name == "new"


def test_a_model_found_nowhere_is_refused_in_the_engines_words(store: Store, link: StillLink):
    resolving(store, link, Failure("no folder, not on the hub", Fault.USER))

    with pytest.raises(UnknownModelError, match="no folder, not on the hub"):
        asyncio.run(a_catalog(store, link, on_demand=True).find(ANNE, "new"))


def test_a_model_that_is_still_being_looked_for_may_be_asked_for_again(
    store: Store, link: StillLink, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(models, "RESOLVE_TIMEOUT_S", 0.05)

    with pytest.raises(OverloadedError, match="still being looked for"):
        asyncio.run(a_catalog(store, link, on_demand=True).find(ANNE, "new"))


def test_a_tokenizers_files_are_told_with_size_and_hash(
    store: Store, link: StillLink, tmp_path: Path
):
    (tmp_path / "tokenizer.json").write_bytes(b"abc")
    (tmp_path / "secrets.txt").write_bytes(b"abc")
    store.set_served([a_served("a", tmp_path)])

    [file] = asyncio.run(a_catalog(store, link, on_demand=False).tokenizer_files(ANNE, "a"))

    assert (file.name, file.size_bytes) == ("tokenizer.json", 3)
    assert file.sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
