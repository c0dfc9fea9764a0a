"""SamplingParams: upstream's, with `stop_token_ids`, and strict about names."""

from collections.abc import Sequence

import tinker
from pydantic import ConfigDict, NonNegativeInt


class SamplingParams(tinker.SamplingParams):
    """Upstream's sampling parameters, and `stop_token_ids`.

    A field that does not exist is refused by name; upstream drops it in silence, and a sequence
    then runs to `max_tokens`.
    """

    model_config = ConfigDict(extra="forbid")

    stop_token_ids: Sequence[NonNegativeInt] | None = None
    """Token ids that end a sequence, in addition to whatever `stop` says. With `stop` unset the
    model's own end tokens still end it too."""


SamplingParams.__module__ = "mint.types"  # as users name it
