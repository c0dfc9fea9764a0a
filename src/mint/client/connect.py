"""From settings to a server that answers: the configured one, or the embedded one."""

from dataclasses import dataclass, field

from mint.client import embedded, settings
from mint.client.settings import ClientSettings
from mint.core.errors import ConfigError


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
    server = embedded.recorded(local.home)
    if server is not None and server.url == config.base_url:
        return Connection(server.url, settings.wire_key(server.key), is_embedded=True)
    raise ConfigError(
        f"a server is configured ({config.base_url}), but no key for it: set MINT_API_KEY (or pass "
        "api_key=). The server's operator makes one with `mint keys create`."
    )
