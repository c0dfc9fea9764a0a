"""ClientSettings: where the service is and how to be let in, read once as one frozen value.

    constructor argument  >  MINT_*  >  TINKER_*  >  the embedded server

Empty variables count as unset.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from mint.core.errors import ConfigError

EMBEDDED_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
"""What the embedded server offers unless MINT_EMBEDDED_MODEL says otherwise."""

_OFF = {"0", "false", "no", "off"}
_ON = {"1", "true", "yes", "on"}


def default_home(env: Mapping[str, str] = os.environ) -> Path:
    """Our folder on this machine: MINT_HOME, else ~/.mint."""
    return Path(env.get("MINT_HOME") or "~/.mint").expanduser().absolute()


@dataclass(frozen=True, kw_only=True)
class EmbeddedSettings:
    """The local server that starts when no URL is configured."""

    enabled: bool = True
    """MINT_EMBEDDED=0 turns it off."""
    home: Path = field(default_factory=default_home)
    """One server per home; its data lie in `home/data`."""
    models: tuple[str, ...] = (EMBEDDED_MODEL,)
    """MINT_EMBEDDED_MODEL: "NAME" or "NAME=FOLDER", several with commas. Others are found by name
    when they are asked for."""
    idle_s: int = 300
    """MINT_EMBEDDED_IDLE_S: it leaves after so long without a request. A client at work sends a
    heartbeat every 10 s, so the server stays with it; below that it would not."""

    def __post_init__(self) -> None:
        if self.idle_s < 1:
            raise ConfigError(f"MINT_EMBEDDED_IDLE_S={self.idle_s}: give 1 or more seconds.")


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """One client's configuration. `base_url` None means: the embedded server."""

    base_url: str | None = None
    """Without "/api/v1" and without a trailing slash; a path in it is kept."""
    api_key: str | None = field(default=None, repr=False)
    """As the user gave it; `wire_key` says how it travels."""
    telemetry: bool = False
    """Whether upstream's client reports usage and errors to the server. Off unless MINT_TELEMETRY=1
    asks for it."""
    embedded: EmbeddedSettings = field(default_factory=EmbeddedSettings)

    def __post_init__(self) -> None:
        if self.base_url is not None and (
            urlsplit(self.base_url).scheme not in ("http", "https")
            or not urlsplit(self.base_url).hostname
        ):
            raise ConfigError(
                f"base_url {self.base_url!r} is not an http(s) URL. Give something like "
                "http://localhost:8000 (MINT_BASE_URL or base_url=)."
            )


def read(
    env: Mapping[str, str] | None = None,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
) -> ClientSettings:
    """Settings from arguments and the environment.

    Raises:
        ConfigError: a key without a URL, or a value that cannot be.
    """
    env = os.environ if env is None else env
    url_name, url = _first(env, base_url, "base_url", "MINT_BASE_URL", "TINKER_BASE_URL")
    key_name, key = _first(env, api_key, "api_key", "MINT_API_KEY", "TINKER_API_KEY")
    if key and not url:
        raise ConfigError(
            f"{key_name} is set, but no server is: set MINT_BASE_URL (or pass base_url=) to the "
            f"server this key is for. To use the local embedded server instead, unset {key_name}."
        )
    if key:
        wire_key(key)  # refuse a malformed key here, where its variable can be named
    try:
        return ClientSettings(
            base_url=url.rstrip("/") if url else None,
            api_key=key,
            telemetry=env.get("MINT_TELEMETRY", "").strip().lower() in _ON,
            embedded=_embedded(env),
        )
    except ConfigError as error:
        raise ConfigError(f"{error} (from {url_name})" if url else str(error)) from None


def wire_key(secret: str) -> str:
    """A key as upstream's client lets it through and our server knows it.

    Upstream refuses anything but "tml-…" and JWTs before it sends a byte; to our server "sk-x" and
    "tml-sk-x" are the same key.

    Raises:
        ConfigError: it has no known beginning (the key itself is not repeated).
    """
    if secret.startswith("sk-"):
        return f"tml-{secret}"
    if secret.startswith(("tml-", "eyJ")):
        return secret
    raise ConfigError(
        "the API key begins with neither 'sk-' nor 'tml-': copy it whole from "
        "`mint keys create` into MINT_API_KEY (or api_key=)."
    )


def _first(
    env: Mapping[str, str], argument: str | None, argument_name: str, *variables: str
) -> tuple[str, str | None]:
    """The first non-empty source, with its name for messages."""
    if argument and argument.strip():
        return argument_name, argument.strip()
    for name in variables:
        if value := env.get(name, "").strip():
            return name, value
    return variables[0], None


def _embedded(env: Mapping[str, str]) -> EmbeddedSettings:
    models = tuple(
        _absolute(entry.strip())
        for entry in env.get("MINT_EMBEDDED_MODEL", "").split(",")
        if entry.strip()
    )
    idle = env.get("MINT_EMBEDDED_IDLE_S") or "300"
    if not idle.isdecimal():
        raise ConfigError(f"MINT_EMBEDDED_IDLE_S={idle!r}: give whole seconds.")
    return EmbeddedSettings(
        enabled=env.get("MINT_EMBEDDED", "").strip().lower() not in _OFF,
        home=default_home(env),
        models=models or (EMBEDDED_MODEL,),
        idle_s=int(idle),
    )


def _absolute(model: str) -> str:
    """ "NAME=FOLDER" with the folder made absolute: the server runs in a folder of its own."""
    name, separator, folder = model.partition("=")
    return f"{name}={Path(folder).expanduser().absolute()}" if separator else model
