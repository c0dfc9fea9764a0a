"""Our additions to upstream's names: errors, settings, and operations of our own."""

from mint.client.extensions import InterpolatedCheckpoint as InterpolatedCheckpoint
from mint.client.extensions import ReverseKLDatum as ReverseKLDatum
from mint.client.extensions import forward_backward_reverse_kl as forward_backward_reverse_kl
from mint.client.extensions import (
    forward_backward_reverse_kl_async as forward_backward_reverse_kl_async,
)
from mint.client.extensions import interpolate_checkpoints as interpolate_checkpoints
from mint.client.extensions import interpolate_checkpoints_async as interpolate_checkpoints_async
from mint.client.settings import ClientSettings as ClientSettings
from mint.client.settings import EmbeddedSettings as EmbeddedSettings
from mint.core.errors import ConfigError as ConfigError
from mint.core.errors import MintError as MintError
from mint.core.errors import ServerFaultError as ServerFaultError
from mint.core.errors import UnsupportedError as UnsupportedError
from mint.core.errors import UserError as UserError
