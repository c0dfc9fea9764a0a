"""ServerSettings: what one server is told, read once, then frozen."""

import hashlib
import ipaddress
import json
import os
import re
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from pathlib import Path

from mint.core.errors import ConfigError
from mint.core.kv_layouts import KV_LAYOUTS

DEVICES = ("cpu", "cuda", "mps", "auto")
DTYPES = ("float32", "bfloat16", "float16", "auto")
LOG_FORMATS = ("text", "json")


POSTGRES = "postgresql+psycopg://"
_POSTGRES_TOO = ("postgresql://", "postgres://")
"""Other spellings of the same, as other programs have them."""


def default_data() -> Path:
    """`$MINT_DATA`, else `$MINT_HOME/server`, else `~/.mint/server`. Not the embedded server's
    folder (`data`), which scripts start and leave at will: one server at a time works on one."""
    if chosen := os.environ.get("MINT_DATA"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("MINT_HOME") or "~/.mint").expanduser() / "server"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a port of that address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name may resolve to anything


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """One server: the API process and its engine process."""

    data: Path
    """Folder of everything that outlives the server: database, checkpoints, keys' hashes. One
    server at a time may use it, unless `database` is a PostgreSQL."""
    database: str | None = field(default=None, repr=False)
    """URL of a PostgreSQL, "postgresql+psycopg://USER@HOST/NAME". None: an SQLite file in `data`. With
    a PostgreSQL several API processes may share one `data` and the one engine process on it. It
    may hold a password, so it is never shown whole."""
    host: str = "127.0.0.1"
    """Address to listen on. Loopback, because anyone who reaches the port may try keys; another
    address is refused while there is no key."""
    port: int = 8000
    """TCP port; 0 takes a free one, which `server.json` then tells."""
    models: tuple[str, ...] = ()
    """Base models on offer, "NAME" or "NAME=FOLDER"."""
    on_demand: bool = False
    """Whether clients may name base models beyond `models`, found on first use. Meant for the
    embedded server of one person; on a shared one a stranger's name would start a download."""
    preload: bool | None = None
    """Whether the weights of `models` are loaded at the start rather than on first use. None: if it is
    one model."""
    device: str = "auto"
    """Where to compute: "cpu", "cuda", "cuda:N" or "mps". "auto": CUDA if there is a device, else the CPU."""
    dtype: str = "auto"
    """Number format of the base weights. "auto": bfloat16 on CUDA, else float32; adapters are float32."""
    threads: int | None = None
    """CPU threads of the engine. None: `OMP_NUM_THREADS`, else the cores this process may use (affinity, cgroup)."""
    decode_threads: int | None = None
    """Of those, the most that share one product with base weights in a decode round; the rest of a round
    is too small to share. None: as many as pay. 1 where waking a thread takes long."""
    memory_limit_gib: float | None = None
    """Weights, adapters and caches together, looked at when a base model is loaded or an adapter made:
    what would go beyond is refused. None: 80 % of what is free at the start."""
    max_sequences: int = 64
    """Sequences decoded side by side. More wait their turn; each needs room in the KV cache."""
    kv_layout: str = "auto"
    """How keys and values lie in memory: "contiguous", each text in one piece, or "paged", in pages that
    texts share. "auto": paged on CUDA where its kernel can serve, else contiguous, quicker on a CPU."""
    batch_tokens: int = 640
    """Tokens of one training micro-batch at most, shared beginnings counted once. Memory that is short
    makes it less. More is quicker on a GPU only (some thousands there), and takes more memory."""
    training_share: float = 0.5
    """Of the computing, while sampling and training both wait. At a half two tokens of a sequence are
    two decode rounds apart while a training pass runs; more makes training quicker and that gap longer."""
    session_timeout_s: float = 1800.0
    """A session silent for longer is ended and its live weights are freed. Upstream's clients send
    a heartbeat every 10 s, but a laptop may sleep for some minutes."""
    result_retention_s: float = 3600.0
    """How long a result can be fetched (again) after its operation ended. Clients that lost an
    answer come back within minutes."""
    max_pending_samples: int = 20_000
    """Sampling requests of one owner that may wait; more are told to come back later."""
    orphan_timeout_s: float = 120.0
    """How long the engine process keeps live adapters after its API process went away, so that a
    restarted one finds them."""
    exit_when_idle_s: float | None = None
    """Leave after this long without a request and without work. None: never. The embedded server
    uses it, so that nothing stays behind."""
    config: Path | None = None
    """TOML file with settings, by their names. It gives way to the environment, which gives way to
    flags."""
    engine: str = "mint.server.worker.build:torch_engine"
    """"MODULE:FUNCTION" that builds the engine from these settings and a place to tell progress, in
    the engine process."""
    log_format: str = "text"
    """"text" for people, "json" for machines: one object a line."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "database", _checked_url(self.database))
        _check_choice("device", self.device.split(":")[0], DEVICES)
        _check_choice("dtype", self.dtype, DTYPES)
        _check_choice("kv_layout", self.kv_layout, KV_LAYOUTS)
        _check_choice("log_format", self.log_format, LOG_FORMATS)
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port={self.port} is outside 0..65535.")
        for name in ("threads", "decode_threads", "memory_limit_gib", "max_sequences",
                     "max_pending_samples", "session_timeout_s", "result_retention_s",
                     "exit_when_idle_s"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"{name}={value}: give more than 0.")
        if self.batch_tokens < 1:
            raise ConfigError(f"batch_tokens={self.batch_tokens}: give at least 1.")
        if not 0 < self.training_share < 1:
            raise ConfigError(
                f"training_share={self.training_share}: give a number between 0 and 1, without "
                "both ends."
            )
        if self.orphan_timeout_s < 0:
            raise ConfigError(f"orphan_timeout_s={self.orphan_timeout_s}: give 0 or more.")
        for entry in self.models:
            name, given, folder = entry.partition("=")
            if not name or (given and not folder):
                raise ConfigError(f"model {entry!r}: give NAME, or NAME=FOLDER.")
        if not self.models and not self.on_demand:
            raise ConfigError(
                "no base model to serve. Give --model NAME (or NAME=FOLDER), or --on-demand to "
                "let clients name one."
            )

    @property
    def store_at(self) -> str | Path:
        """Where the store is: a PostgreSQL's URL, or the path of an SQLite file."""
        return self.database or self.data / "mint.db"

    @property
    def shown_database(self) -> str:
        """The same for people: without a password."""
        return re.sub(r"(://[^:/@]*):[^/]*@", r"\1:***@", str(self.store_at))

    @property
    def is_shared(self) -> bool:
        """Whether other API processes may work on the same store and engine."""
        return self.database is not None

    @property
    def memory_limit_bytes(self) -> int | None:
        return None if self.memory_limit_gib is None else int(self.memory_limit_gib * 2**30)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the port."""
        return is_loopback(self.host)

    def engine_fingerprint(self) -> str:
        """Equal for settings that mean the same engine process, over restarts of the API."""
        mine = (
            "models", "on_demand", "preload", "device", "dtype", "threads", "decode_threads",
            "memory_limit_gib", "max_sequences", "kv_layout", "batch_tokens", "training_share",
            "engine", "database",
        )  # fmt: skip
        told = json.dumps([version("mint-rl"), *(getattr(self, name) for name in mine)])
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """For the engine process, which reads it with `from_json`. It may hold a password."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> "ServerSettings":
        told = json.loads(text)
        unknown = set(told) - {field.name for field in fields(cls)}
        if unknown:
            raise ConfigError(f"unknown settings {sorted(unknown)}.")
        config = told.get("config")
        paths = {"data": Path(told["data"]), "config": Path(config) if config else None}
        return cls(**{**told, **paths, "models": tuple(told["models"])})


def _checked_url(database: str | None) -> str | None:
    if not database:
        return None
    for other in _POSTGRES_TOO:
        if database.startswith(other):
            database = POSTGRES + database.removeprefix(other)
    if not database.startswith(POSTGRES):
        raise ConfigError(
            f"database: the URL begins with {database.partition('://')[0]!r}; give "
            f"{POSTGRES}USER@HOST/NAME, or none for an SQLite file in the data folder."
        )
    return database


def _check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name}={value!r}: give one of {', '.join(allowed)}.")
