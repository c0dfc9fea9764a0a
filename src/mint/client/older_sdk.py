"""A ServiceClient on SDKs before 0.38, for recipes where another package pins one (tinker 0.22).

Our settings, and nothing else: the clients it makes are upstream's own, so `stop_token_ids`, tokenizers
from the server and `mint.mint`'s operations need tinker 0.38. Recipes need none of them.
"""

from typing import Any

import tinker

from mint.client.connect import Connection, extensions, opened, reach


class ServiceClient(tinker.ServiceClient):
    """Upstream's ServiceClient, with our settings.

    Args:
        base_url: the server; else MINT_BASE_URL, TINKER_BASE_URL, or the embedded local server.
        api_key: "sk-…"; else MINT_API_KEY, TINKER_API_KEY, or the embedded server's own.

    Raises:
        ConfigError: as the settings of `mint.ServiceClient` say.
        ServerFaultError: nobody answers at the URL; this SDK opens its session at once.
    """

    def __init__(
        self,
        user_metadata: dict[str, str] | None = None,
        project_id: str | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        **named: Any,
    ) -> None:
        self._connection: Connection = opened(base_url, api_key)
        reach(self._connection)  # or upstream tries for minutes without a word
        super().__init__(
            user_metadata,
            project_id,
            base_url=self._connection.base_url,
            api_key=self._connection.api_key,
            **named,
        )

    def server_extensions(self) -> frozenset[str]:
        """What the server does beyond upstream's service, by name; empty for one that is not ours."""
        return extensions(self._connection)


TrainingClient = tinker.TrainingClient
SamplingClient = tinker.SamplingClient

ServiceClient.__module__ = "mint"
