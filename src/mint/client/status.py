"""What a server is doing, asked once."""

from typing import Any

import httpx

from mint.client import connect, local_server
from mint.client.connect import Connection
from mint.client.settings import ClientSettings, wire_key
from mint.core.errors import AuthenticationError, ConfigError, ServerFaultError

_TIMEOUT_S = 30.0


def running(config: ClientSettings) -> Connection:
    """The configured server, or the embedded one if it runs. Nothing is started.

    Raises:
        ConfigError: none is configured, and none runs here.
    """
    if config.base_url is not None:
        return connect.connect(config)
    server = local_server.running(config.embedded.home)
    if server is None:
        raise ConfigError(
            "no server is configured (MINT_BASE_URL and MINT_API_KEY), and no embedded one runs."
        )
    return Connection(server.url, wire_key(server.key), is_embedded=True)


def ask(connection: Connection) -> dict[str, Any]:
    """Sessions, models, queue and engine; see GET /api/v1/mint/status.

    Raises:
        ServerFaultError: nobody answers there, or not as a server of ours does.
        AuthenticationError: the server refuses the key.
    """
    answer = connect.ask(connection, "mint/status", _TIMEOUT_S)
    if answer.status_code == 401:
        raise AuthenticationError(f"{connection.base_url} refuses the API key.")
    try:
        answer.raise_for_status()
        return answer.json()
    except (httpx.HTTPError, ValueError):
        raise ServerFaultError(
            f"{answer.url} answered {answer.status_code}: no MinT server, or an older one."
        ) from None
