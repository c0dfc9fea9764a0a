"""The tinker-shaped public types: upstream's, with a SamplingParams that has `stop_token_ids`."""

from collections.abc import Sequence

from pydantic import ConfigDict, NonNegativeInt
from tinker import types as _upstream
from tinker.types import *  # noqa: F403  # pyright: ignore


class SamplingParams(_upstream.SamplingParams):
    """Upstream's sampling parameters, and `stop_token_ids`.

    A field that does not exist is refused by name; upstream drops it in silence, and a sequence
    then runs to `max_tokens`.
    """

    model_config = ConfigDict(extra="forbid")

    stop_token_ids: Sequence[NonNegativeInt] | None = None
    """Token ids that end a sequence, in addition to whatever `stop` says. With `stop` unset the
    model's own end tokens still end it too."""
