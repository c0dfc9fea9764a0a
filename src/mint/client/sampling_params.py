"""SamplingParams: upstream's, with `stop_token_ids`, and strict about names."""

from collections.abc import Sequence

import tinker
from pydantic import ConfigDict, NonNegativeInt, field_validator


class SamplingParams(tinker.SamplingParams):
    """Upstream's sampling parameters, and `stop_token_ids`.

    A field that does not exist is refused by name; upstream drops it in silence, and a sequence
    then runs to `max_tokens`.
    """

    model_config = ConfigDict(extra="forbid")

    stop_token_ids: Sequence[NonNegativeInt] | None = None
    """Token ids that end a sequence, in addition to whatever `stop` says. With `stop` unset the
    model's own end tokens still end it too."""

    @field_validator("stop_token_ids")
    @classmethod
    def _can_be_sent(cls, ids: Sequence[int] | None) -> Sequence[int] | None:
        if ids is not None and _sdk() < (0, 38):
            raise ValueError(
                f"tinker {tinker.__version__} has no way to send them. Put the ids into stop, or "
                "install tinker 0.38."
            )
        return ids


def _sdk() -> tuple[int, ...]:
    return tuple(int(part) for part in tinker.__version__.split(".")[:2])


SamplingParams.__module__ = "mint.types"  # as users name it
