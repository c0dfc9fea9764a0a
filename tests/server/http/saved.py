"""Checkpoints of a test's owner, with files, as if the engine had saved them."""

from pathlib import Path
from typing import Any

from tests.server.http.conftest import MODEL, House

from mint.core.ids import ModelId, OperationId
from mint.core.lora import LoraSpec
from mint.core.operations import ModelReady
from mint.server.store.records import Effects, ModelState, NewCheckpoint
from mint.wire import payloads


def ready_model(house: House, session: str | None = None, seq: int = 0) -> str:
    """A model that has been created."""
    model = house.model(session, seq)
    [created] = [row for row in house.store.pending() if row.model_id == model]
    ready = payloads.encode_result(ModelReady(base_model=MODEL, lora=LoraSpec()))
    effects = Effects(model_id=ModelId(model), model_state=ModelState.READY)
    house.store.finish(created.operation_id, ready, effects=effects)
    return model


def saved(house: House, model: str, name: str, kind: str = "weights", **fields: Any) -> str:
    """A checkpoint of a model, with two files; returns its path."""
    path = f"tinker://{model}/{kind}/{name}"
    folder = f"checkpoints/{model}-{kind}-{name}".replace(":", "-")
    write(house.data / folder)
    request = house.post("save_weights", model_id=model, path=name).json()["request_id"]
    checkpoint = NewCheckpoint(
        path=path,
        owner=house.owner,
        model_id=ModelId(model),
        kind=kind,
        name=name,
        base_model=MODEL,
        lora=LoraSpec(),
        folder=folder,
        size_bytes=3002,
        **fields,
    )
    house.store.finish(OperationId(request), b"{}", effects=Effects(checkpoint=checkpoint))
    return path


def write(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "adapter_model.safetensors").write_bytes(b"a" * 3000)
    (folder / "manifest.json").write_text("{}")
