"""From settings to a server that answers: the configured one, or the embedded one."""

import os
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field

import httpx

from mint.client import embedded, local_server, settings
from mint.client.settings import ClientSettings
from mint.core.errors import AuthenticationError, ConfigError, ServerFaultError


@dataclass(frozen=True)
class Connection:
    """Where to send requests, and the key they carry."""

    base_url: str
    api_key: str = field(repr=False)
    """In the form that goes over the wire."""
    is_embedded: bool = False


def connect(config: ClientSettings) -> Connection:
    """The connection these settings mean; starts or joins the embedded server if need be.

    Raises:
        ConfigError: nothing to connect to, or no key for it.
        ServerFaultError: the embedded server did not start.
    """
    local = config.embedded
    if config.base_url is None:
        if not local.enabled:
            raise ConfigError(
                "no server is configured: set MINT_BASE_URL and MINT_API_KEY (or pass base_url= "
                "and api_key=). The embedded local server is turned off by MINT_EMBEDDED=0."
            )
        server = embedded.join_or_start(local)
        return Connection(server.url, settings.wire_key(server.key), is_embedded=True)
    if config.api_key is not None:
        return Connection(config.base_url, settings.wire_key(config.api_key))
    server = local_server.recorded(local.home)
    if server is not None and server.url == config.base_url:
        return Connection(server.url, settings.wire_key(server.key), is_embedded=True)
    raise ConfigError(
        f"a server is configured ({config.base_url}), but no key for it: set MINT_API_KEY (or pass "
        "api_key=). The server's operator makes one with `mint keys create`."
    )


def opened(base_url: str | None, api_key: str | None) -> Connection:
    """Settings to connection, with upstream's telemetry switch set on the way."""
    config = settings.read(base_url=base_url, api_key=api_key)
    # Upstream has no argument for it. A user's own TINKER_TELEMETRY stays as it is.
    os.environ.setdefault("TINKER_TELEMETRY", "1" if config.telemetry else "0")
    return connect(config)


def reach(connection: Connection, timeout_s: float = 15.0) -> httpx.Response:
    """Ask the server for what it offers, and give its answer back whatever it says.

    Upstream's client tries for five minutes before it says that nobody answers; a person wants to
    know within seconds, so a refused connection is tried again twice only.

    Raises:
        ServerFaultError: nobody answers there, or not as a server of this kind does.
    """
    try:
        answer = _capabilities(connection, timeout_s)
    except httpx.HTTPError as error:
        raise ServerFaultError(
            f"no server answers at {connection.base_url} ({type(error).__name__}). Is it running, "
            "and is MINT_BASE_URL right?"
        ) from error
    if answer.status_code == 404:
        raise _no_such_server(answer)
    return answer


def _capabilities(connection: Connection, timeout_s: float) -> httpx.Response:
    for wait_s in (1.0, 2.0, 0.0):
        with suppress(httpx.ConnectError) if wait_s else nullcontext():
            return _get(connection, "get_server_capabilities", timeout_s)
        time.sleep(wait_s)
    raise AssertionError("the last try returns or raises")


def _get(connection: Connection, route: str, timeout_s: float) -> httpx.Response:
    return httpx.get(
        f"{connection.base_url}/api/v1/{route}",
        headers={"X-API-Key": connection.api_key},
        timeout=timeout_s,
        trust_env=not connection.is_embedded,
    )


def check(connection: Connection, timeout_s: float = 15.0) -> tuple[str, ...]:
    """The base models the server offers, once it answers and knows the key.

    Raises:
        ServerFaultError: nobody answers there, or not as a server of this kind does.
        AuthenticationError: the server refuses the key.
    """
    answer = reach(connection, timeout_s)
    if answer.status_code in (401, 403):
        raise AuthenticationError(
            f"{connection.base_url} refuses the API key. Check MINT_API_KEY; `mint keys list` on "
            "the server shows which keys are valid."
        )
    try:
        answer.raise_for_status()
        return tuple(m["model_name"] for m in answer.json()["supported_models"])
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        raise _no_such_server(answer) from None


def ask(connection: Connection, route: str, timeout_s: float) -> httpx.Response:
    """What the server says at a route below /api/v1, whatever that is; asked once.

    Raises:
        ServerFaultError: nobody answers there.
    """
    try:
        return _get(connection, route, timeout_s)
    except httpx.HTTPError as error:
        raise ServerFaultError(
            f"no server answers at {connection.base_url} ({type(error).__name__})."
        ) from error


def extensions(connection: Connection, timeout_s: float = 15.0) -> frozenset[str]:
    """What the server can do beyond upstream's, by name; nothing for a server that is not ours.

    Raises:
        ServerFaultError: nobody answers there.
    """
    answer = ask(connection, "mint/server", timeout_s)
    if answer.status_code != 200:
        return frozenset()
    told = answer.json()
    return frozenset(told.get("extensions", ())) if isinstance(told, dict) else frozenset()


def _no_such_server(answer: httpx.Response) -> ServerFaultError:
    return ServerFaultError(
        f"{answer.url} answered {answer.status_code}, which is no server of this kind. A base URL "
        "ends before /api/v1."
    )
