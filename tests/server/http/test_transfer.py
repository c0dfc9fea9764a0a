"""Checkpoints as files: what is sent arrives whole or not at all, and owners see their own."""

import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

import pytest
from tests.server.http.conftest import MODEL, House
from tests.server.waiting import until

from mint.core.checkpoints import short_id
from mint.core.errors import StorageError
from mint.core.ids import ModelId, Owner
from mint.core.lora import LoraSpec
from mint.core.operations import ImportAdapter
from mint.server.service import transfer
from mint.server.service.transfer import remove_stale, remove_unfinished
from mint.server.store.checkpoints import replace_checkpoint
from mint.server.store.database import utcnow
from mint.server.store.records import NewCheckpoint
from mint.wire import payloads
from mint.wire.bundle import File, Header, write_header

FILES = {"adapter_model.safetensors": b"tensors" * 1000, "adapter_config.json": b'{"r": 4}'}
ROUTE = "/api/v1/mint/checkpoint"


def header(files=FILES, **fields) -> bytes:
    listed = [
        File(name=name, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        for name, data in files.items()
    ]
    return write_header(Header(**{"name": "mine", "base_model": MODEL, "files": listed, **fields}))


def body(files=FILES, **fields) -> bytes:
    return header(files, **fields) + b"".join(files.values())


def uploads(house: House) -> list[str]:
    folder = house.data / "uploads"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


@pytest.fixture(autouse=True)
def _no_uploads(house: House):
    yield
    for name in uploads(house):
        subprocess.run(["rm", "-r", str(house.data / "uploads" / name)], check=True)


def saved(house: House, name: str = "a") -> str:
    """A checkpoint of the house's owner, as the engine would have written it."""
    path = f"tinker://{house.owner}-run/sampler_weights/{name}"
    folder = house.data / "checkpoints" / f"{house.owner}-{name}"
    folder.mkdir(parents=True)
    signed = {}
    for file, data in FILES.items():
        (folder / file).write_bytes(data)
        signed[file] = [len(data), hashlib.sha256(data).hexdigest()]
    (folder / "manifest.json").write_text(json.dumps({"files": signed}))
    new = NewCheckpoint(
        path=path, owner=house.owner, model_id=ModelId(f"{house.owner}-run"),
        kind="sampler_weights", name=name, base_model=MODEL, lora=LoraSpec(rank=4),
        folder=folder.relative_to(house.data).as_posix(), size_bytes=7000,
    )  # fmt: skip
    with house.store.writing() as tx:
        replace_checkpoint(tx, new, utcnow())
    return path


def test_an_upload_lies_whole_before_its_import_is_queued(house):
    answer = house.http.post(f"{ROUTE}s", content=body())

    told = answer.json()
    assert answer.status_code == 200
    assert told["path"].endswith("/sampler_weights/mine")
    [row] = house.store.pending()
    [(_, kind, payload)] = house.store.take([row.operation_id])
    operation = payloads.decode(kind, payload)
    assert isinstance(operation, ImportAdapter)
    folder = house.data / "uploads" / operation.upload
    assert uploads(house) == [operation.upload]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FILES


def test_an_import_that_cannot_be_queued_leaves_no_session_open(house, monkeypatch):
    def full(*_, **__):
        raise StorageError("the disk is full")

    before = house.open_sessions()
    with monkeypatch.context() as patch:
        patch.setattr(house.store, "enqueue", full)
        refused = house.http.post(f"{ROUTE}s", content=body())

    assert refused.status_code >= 500
    assert house.open_sessions() == before


def test_optimizer_state_makes_it_a_checkpoint_to_train_on_from(house):
    files = {**FILES, "optimizer.safetensors": b"o", "manifest.json": b"{}"}

    told = house.http.post(f"{ROUTE}s", content=body(files)).json()

    assert "/weights/mine" in told["path"]


@pytest.mark.parametrize(
    ("content", "status", "says"),
    [
        (body()[:-1], 400, "1 bytes too early"),
        (body() + b"x", 400, "more bytes"),
        (body()[:-1] + b"x", 400, "sha256"),
        (b"no header", 400, "no header"),
        (b"{}\n", 400, "no header"),
        (b"x" * 200_000, 400, "no header line"),
        (body({"adapter_config.json": b"{}"}), 400, "adapter_model.safetensors"),
        (body({**FILES, "../../x": b"x"}), 400, "'../../x'"),
        (body({**FILES, "optimizer.safetensors": b"x"}), 400, "manifest.json"),
        (body(name="a/b"), 400, "'a/b'"),
        (body(base_model="gpt-9"), 400, "'gpt-9' is not served"),
    ],
)
def test_what_is_not_whole_or_not_an_adapter_is_refused_and_leaves_nothing(
    house, content, status, says
):
    answer = house.http.post(f"{ROUTE}s", content=content)

    assert (answer.status_code, says in answer.json()["detail"]) == (status, True), answer.text
    assert uploads(house) == []
    assert house.store.pending() == []


def test_an_upload_above_the_limit_is_refused_by_its_announcement(house, monkeypatch):
    monkeypatch.setattr(transfer, "MAX_UPLOAD_BYTES", 100)

    answer = house.http.post(f"{ROUTE}s", params={"check": True}, content=header())

    assert answer.status_code == 413
    assert "7008" in answer.json()["detail"]


def test_an_announcement_alone_says_whether_it_would_be_taken(house):
    answer = house.http.post(f"{ROUTE}s", params={"check": True}, content=header())

    assert answer.json() == {"accepted": True}
    assert house.store.pending() == []


def test_a_client_that_dies_in_the_middle_leaves_nothing(house):
    url = urlsplit(house.url)
    sent = body()
    with socket.create_connection((url.hostname, url.port)) as client:
        client.sendall(
            f"POST {ROUTE}s HTTP/1.1\r\nHost: x\r\nX-API-Key: {house.key}\r\n"
            f"Content-Length: {len(sent)}\r\n\r\n".encode()
            + sent[:4000]
        )
        until(lambda: len(uploads(house)) == 1)

    until(lambda: uploads(house) == [])
    assert house.store.pending() == []


def test_a_server_that_died_in_the_middle_leaves_nothing_to_the_next_one(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for name in (f"a.{dead.pid}.partial", f"b.{os.getpid()}.partial", f"c.{os.getppid()}.partial",
                 "whole"):  # fmt: skip
        (tmp_path / "uploads" / name).mkdir(parents=True)

    remove_unfinished(tmp_path)

    left = sorted(path.name for path in (tmp_path / "uploads").iterdir())
    assert left == [f"c.{os.getppid()}.partial", "whole"]


def test_an_upload_that_nobody_took_goes_after_a_day(tmp_path):
    for name, age_s in (("old", 90_000), ("new", 0)):
        (tmp_path / "uploads" / name).mkdir(parents=True)
        then = time.time() - age_s
        os.utime(tmp_path / "uploads" / name, (then, then))

    remove_stale(tmp_path)

    assert [path.name for path in (tmp_path / "uploads").iterdir()] == ["new"]


def test_a_checkpoint_is_described_and_fetched_file_by_file(house):
    path = saved(house)

    told = house.http.get(ROUTE, params={"path": path}).json()

    assert (told["id"], told["path"], told["lora"]["rank"]) == (short_id(path), path, 4)
    for file in told["files"]:
        data = house.http.get(f"{ROUTE}/{file['name']}", params={"path": path}).content
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file["size_bytes"], file["sha256"])
    assert {file["name"] for file in told["files"]} == {*FILES, "manifest.json"}


@pytest.mark.parametrize("name", ["nothing", "..%2F..%2Fmint.db", "mint.db"])
def test_nothing_but_the_files_of_the_manifest_is_handed_out(house, name):
    path = saved(house)

    assert house.http.get(f"{ROUTE}/{name}", params={"path": path}).status_code == 404


def test_every_spelling_means_the_same_checkpoint(house):
    path = saved(house)
    spellings = (path, path.replace("tinker://", "mint://"), short_id(path))

    told = [house.http.get(ROUTE, params={"path": one}).json()["path"] for one in spellings]

    assert told == [path] * 3
    info = house.post("weights_info", tinker_path=short_id(path)).json()
    assert info["lora_rank"] == 4


def test_to_another_owner_a_checkpoint_does_not_exist_by_any_name(house):
    path = saved(house)
    bob = house.client(house.new_key("bob"))

    for reference in (path, short_id(path), "tinker://x/weights/y", "ckpt_000000000000"):
        for answer in (
            bob.get(ROUTE, params={"path": reference}),
            bob.get(f"{ROUTE}/adapter_config.json", params={"path": reference}),
            bob.delete(ROUTE, params={"path": reference}),
        ):
            assert answer.status_code == 404
            assert reference in answer.json()["detail"]
    assert bob.get(f"{ROUTE}s").json() == {"checkpoints": []}
    assert house.http.get(ROUTE, params={"path": path}).status_code == 200


def test_a_deleted_checkpoint_takes_its_files_along(house):
    path = saved(house)
    [row] = house.store.list_checkpoints(Owner(house.owner))

    assert house.http.delete(ROUTE, params={"path": short_id(path)}).status_code == 204

    assert not (house.data / row.folder).exists()
    assert house.http.get(ROUTE, params={"path": path}).status_code == 404
