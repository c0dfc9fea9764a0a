import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.server.waiting import until

from mint.core.errors import StorageError
from mint.core.ids import OperationId
from mint.server.channel import EngineLink, EnginePhase
from mint.server.channel.engine_file import engine_file, read_address
from mint.server.channel.engine_process import Respawns, RunningEngine
from mint.server.channel.listener import Listener
from mint.server.channel.messages import Cancel, Ended, Message, Stay, Stop, Wake, decode, encode
from mint.server.settings import ServerSettings

OPERATION = OperationId("1")


def settings_of(folder: Path, **fields) -> ServerSettings:
    return ServerSettings(data=folder, models=("tiny",), **fields)


class Side:
    """The engine process's end in this process, and what it was told."""

    def __init__(self, folder: Path, **fields) -> None:
        self.told: list[Message] = []
        fingerprint = settings_of(folder, **fields).engine_fingerprint()
        self.listener = Listener(folder, fingerprint, self.told.append)
        self.listener.start()


@pytest.fixture
def side(tmp_path, monkeypatch):
    """An engine process that this one finds running: itself."""
    monkeypatch.setattr("mint.server.channel.engine_process._is_engine", lambda _process: True)
    side = Side(tmp_path)
    yield side
    side.listener.close()


async def joined(folder: Path) -> EngineLink:
    link = EngineLink(settings_of(folder))
    await link.start()
    return link


async def leave(link: EngineLink) -> None:
    """Go away without stopping the engine, as an API process does that dies."""
    link._engine = None
    await link.close()


async def soon(look) -> None:
    for _ in range(3000):
        if look():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("still nothing")


def test_who_waits_is_woken_by_the_engines_message(side, tmp_path):
    async def run() -> None:
        link = await joined(tmp_path)
        waiting = asyncio.create_task(link.ended(OPERATION, timeout_s=30))
        await asyncio.to_thread(side.listener.wait_connected, 30)
        await asyncio.sleep(0.05)
        assert not waiting.done()
        side.listener.ended([OPERATION])
        assert await waiting
        assert await link.ended(OPERATION, timeout_s=0)  # the message came before the question
        assert not await link.ended(OperationId("2"), timeout_s=0.01)
        assert link._waiting == {}
        await leave(link)

    asyncio.run(run())


def test_endings_told_while_nobody_listened_are_told_again(side, tmp_path):
    side.listener.ended([OPERATION])

    async def run() -> None:
        link = await joined(tmp_path)
        assert await link.ended(OPERATION, timeout_s=30)
        await leave(link)

    asyncio.run(run())


def test_wishes_reach_the_engine(side, tmp_path):
    async def run() -> None:
        link = await joined(tmp_path)
        await soon(lambda: side.told == [Wake()])  # joining is news: something may be queued
        link.wake()
        link.cancel(OPERATION)
        await soon(lambda: side.told == [Wake(), Wake(), Cancel(OPERATION)])
        await leave(link)

    asyncio.run(run())


def test_health_follows_the_engines_reports(side, tmp_path):
    async def run() -> None:
        link = await joined(tmp_path)
        assert link.health().state is EnginePhase.STARTING
        side.listener.state(EnginePhase.STARTING, "converting weights")
        await soon(lambda: link.health().detail == "converting weights")
        side.listener.state(EnginePhase.UP, "idle", {"adapters": 2})
        health = await link.settled()
        assert (health.state, health.pid, health.capacity) == (
            EnginePhase.UP, os.getpid(), {"adapters": 2},
        )  # fmt: skip
        await leave(link)

    asyncio.run(run())


def test_a_leaving_server_lets_everyone_go(side, tmp_path):
    async def run() -> None:
        link = await joined(tmp_path)
        waiting = asyncio.create_task(link.ended(OPERATION, timeout_s=300))
        await asyncio.sleep(0.05)
        link.let_go()
        assert not await waiting
        assert not await link.ended(OPERATION, timeout_s=300)
        await leave(link)

    asyncio.run(run())


def test_the_engine_notices_that_nobody_is_there(side, tmp_path):
    async def run() -> None:
        link = await joined(tmp_path)
        await asyncio.to_thread(side.listener.wait_connected, 30)
        assert side.listener.lonely_for_s() == 0.0
        await leave(link)

    asyncio.run(run())
    until(lambda: side.listener.lonely_for_s() > 0)


def test_a_connection_without_the_token_is_dropped(side, tmp_path):
    address = read_address(tmp_path)
    assert address is not None
    for line in (
        b'{"type": "Hello", "token": "guess"}\n',
        b'{"type": "Stop"}\n',
        b"GET / HTTP/1.1\n",
    ):
        with socket.create_connection(("127.0.0.1", address.port)) as stranger:
            stranger.sendall(line)
            assert stranger.recv(1) == b""
    assert side.told == []


def test_the_address_is_for_its_owner_only_and_goes_with_the_listener(side, tmp_path):
    assert engine_file(tmp_path).stat().st_mode & 0o777 == 0o600
    side.listener.close()
    assert read_address(tmp_path) is None


@pytest.mark.parametrize("message", [Wake(), Stop(), Stay(), Cancel(OPERATION), Ended([OPERATION])])
def test_messages_survive_the_way(message):
    assert decode(encode(message)) == message


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b'{"type": "Hello"}', b'{"type": "exec"}'])
def test_what_is_no_message_is_refused(line):
    with pytest.raises(ValueError, match="not a message"):
        decode(line)


def test_a_dead_engine_is_replaced_ever_later_and_then_no_more():
    respawns = Respawns(most=3, within_s=600, first_wait_s=1)

    assert [respawns.next_wait_s(float(now)) for now in range(4)] == [1, 2, 4, None]


def test_an_engine_that_keeps_dying_is_given_up_and_everyone_is_told(tmp_path, monkeypatch):
    spawned: list[subprocess.Popen[bytes]] = []

    def spawn(_settings) -> subprocess.Popen[bytes]:
        spawned.append(subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]))
        return spawned[-1]

    monkeypatch.setattr("mint.server.channel.engine_process.spawn_engine", spawn)
    lost: list[str] = []
    down: list[str] = []

    async def run() -> None:
        link = EngineLink(
            settings_of(tmp_path),
            on_lost=lambda what: lost.append(what) or [OPERATION],
            on_down=lambda what: down.append(what) or [OperationId(f"down {len(down)}")],
            respawns=Respawns(most=1, first_wait_s=0.01),
        )
        await link.start()
        assert await link.ended(OPERATION, timeout_s=30)
        health = await link.settled()
        assert health.state is EnginePhase.DOWN
        assert "died too often" in health.detail
        assert await link.ended(OperationId("down 1"), timeout_s=30)
        link.wake()  # a submission that came later is told too
        assert await link.ended(OperationId("down 2"), timeout_s=30)
        await link.close()

    asyncio.run(run())
    assert len(spawned) == len(lost) == 2
    assert all("exit status 3" in what for what in lost)


def test_who_waits_for_a_dead_engine_is_told_once_the_store_can_be_written(tmp_path, monkeypatch):
    def spawn(_settings) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])

    monkeypatch.setattr("mint.server.channel.engine_process.spawn_engine", spawn)
    monkeypatch.setattr("mint.server.channel.link._END_AGAIN_S", 0.01)
    tries: list[str] = []

    def full_at_first(what: str) -> list[OperationId]:
        tries.append(what)
        if len(tries) < 3:
            raise StorageError("database or disk is full")
        return [OPERATION]

    async def run() -> None:
        link = EngineLink(settings_of(tmp_path), on_down=full_at_first, respawns=Respawns(most=0))
        await link.start()
        assert await link.ended(OPERATION, timeout_s=30)
        await link.close()

    asyncio.run(run())
    assert len(tries) == 3


def test_deaths_of_long_ago_are_forgiven():
    respawns = Respawns(most=1, within_s=600, first_wait_s=1)

    assert respawns.next_wait_s(0.0) == 1
    assert respawns.next_wait_s(601.0) == 1


def test_an_api_process_that_does_not_read_does_not_hold_the_engine_up(side, tmp_path, monkeypatch):
    monkeypatch.setattr("mint.server.channel.listener._SEND_TIMEOUT_S", 1)
    address = read_address(tmp_path)
    assert address is not None
    with socket.create_connection(("127.0.0.1", address.port)) as deaf:
        deaf.sendall(b'{"type": "Hello", "token": "%s"}\n' % address.token.encode())
        assert side.listener.wait_connected(30)
        many = [OperationId(str(i)) for i in range(100_000)]
        began = time.monotonic()
        while side.listener.lonely_for_s() == 0.0 and time.monotonic() - began < 60:
            side.listener.ended(many)
        assert side.listener.lonely_for_s() > 0


def test_a_signal_means_the_process_of_the_file_only(tmp_path):
    """The number in a file left behind may belong to a stranger by now."""
    stranger = RunningEngine(os.getpid(), None)
    assert stranger.gone()
    stranger.signal(signal.SIGTERM)  # would end this test run


# -------------------------------------------------- several API processes


async def two_joined(folder: Path, side: Side) -> tuple[EngineLink, EngineLink]:
    links = []
    for _ in range(2):
        link = EngineLink(settings_of(folder, database="postgresql://nowhere"))
        await link.start()
        links.append(link)
    await soon(lambda: len(side.listener._connections) == 2)
    return links[0], links[1]


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """An engine process that API processes share: this one."""
    monkeypatch.setattr("mint.server.channel.engine_process._is_engine", lambda _process: True)
    side = Side(tmp_path, database="postgresql://nowhere")
    yield side
    side.listener.close()


def test_an_ending_wakes_those_who_wait_at_any_api_process(shared, tmp_path):
    async def run() -> None:
        links = await two_joined(tmp_path, shared)
        waiting = [asyncio.create_task(link.ended(OPERATION, timeout_s=30)) for link in links]
        await asyncio.sleep(0.05)
        shared.listener.ended([OPERATION])
        assert await asyncio.gather(*waiting) == [True, True]
        for link in links:
            await leave(link)

    asyncio.run(run())


def test_what_one_api_process_withdraws_is_told_to_the_other(shared, tmp_path):
    async def run() -> None:
        one, other = await two_joined(tmp_path, shared)
        waiting = asyncio.create_task(other.ended(OPERATION, timeout_s=30))
        await asyncio.sleep(0.05)
        one.announce([OPERATION])
        assert await waiting
        for link in (one, other):
            await leave(link)

    asyncio.run(run())


def test_only_the_last_api_process_takes_the_engine_along(shared, tmp_path, monkeypatch):
    async def gone(_engine, _grace_s) -> None:
        return

    monkeypatch.setattr(RunningEngine, "wait_gone", gone)

    async def run() -> None:
        one, other = await two_joined(tmp_path, shared)
        assert one._keeping.is_mine()
        assert not other._keeping.is_mine()
        await one.close()
        assert Stop() not in shared.told
        await soon(other._keeping.is_mine)
        closing = asyncio.create_task(other.close())
        await soon(lambda: Stop() in shared.told)
        shared.listener.close()  # as the engine process does when it leaves
        await closing

    asyncio.run(run())


def test_a_process_of_other_settings_leaves_the_keepers_engine_alone(shared, tmp_path, monkeypatch):
    monkeypatch.setattr("mint.server.channel.link.REPLACE_GRACE_S", 0.1)
    ended: list[str] = []

    async def run() -> None:
        keeper = EngineLink(settings_of(tmp_path, database="postgresql://nowhere"))
        await keeper.start()
        await soon(lambda: shared.listener._connections)
        stranger = EngineLink(
            settings_of(tmp_path, database="postgresql://elsewhere"),
            on_down=lambda what: ended.append(what) or [],
        )
        await stranger.start()
        health = await stranger.down()
        assert "has an engine process of other settings" in health.detail
        stranger.wake()
        await stranger.close()
        assert Stop() not in shared.told
        await leave(keeper)

    asyncio.run(run())
    assert ended == []
