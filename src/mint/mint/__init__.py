"""Our additions to upstream's names: errors and settings."""

from mint.client.settings import ClientSettings as ClientSettings
from mint.client.settings import EmbeddedSettings as EmbeddedSettings
from mint.core.errors import ConfigError as ConfigError
from mint.core.errors import MintError as MintError
from mint.core.errors import ServerFaultError as ServerFaultError
from mint.core.errors import UnsupportedError as UnsupportedError
from mint.core.errors import UserError as UserError
