"""A wrong key is refused at once, as what it is."""

import os

import tinker
from tests.sdks.scripting import refused

os.environ["TINKER_API_KEY"] = "tml-sk-stranger"
refused(
    lambda: tinker.ServiceClient().get_server_capabilities(),
    says="key",
    by=tinker.AuthenticationError,
)
