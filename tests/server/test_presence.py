from pathlib import Path

from mint.server.channel import EngineHealth, EnginePhase
from mint.server.presence import banner
from mint.server.settings import ServerSettings

UP = EngineHealth(state=EnginePhase.UP, detail="idle", pid=7)


def test_the_banner_says_what_was_read_and_where_things_are():
    settings = ServerSettings(
        data=Path("/data"), models=("tiny",), threads=2, config=Path("/etc/mint.toml"),
        database="postgresql://mint:hush@db/mint",
    )  # fmt: skip

    assert banner(settings, "http://127.0.0.1:8000", [], None, UP) == [
        "MinT is serving at http://127.0.0.1:8000",
        "  models   ",
        "  engine   device auto, dtype auto, 2 threads (the setting threads), process 7",
        "  data     /data",
        "  database postgresql+psycopg://mint:***@db/mint",
        "  settings /etc/mint.toml, below flags and environment",
        "  key      one from `mint keys create NAME`; `mint keys list` shows all",
    ]


def test_an_ordinary_servers_banner_is_as_short_as_it_was():
    settings = ServerSettings(data=Path("/data"), on_demand=True, threads=2)

    assert banner(settings, "http://127.0.0.1:8000", [], Path("/data/key"), UP) == [
        "MinT is serving at http://127.0.0.1:8000",
        "  models   any by name, found on first use",
        "  engine   device auto, dtype auto, 2 threads (the setting threads), process 7",
        "  data     /data",
        "  key      in /data/key; clients of this machine:",
        "           export MINT_BASE_URL=http://127.0.0.1:8000 MINT_API_KEY=$(cat /data/key)",
    ]
