"""The settings of an adapter, read and checked together."""

import logging
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from mint.recipe.exceptions import ConfigurationError
from mint.rl_core.checks import is_positive, is_whole
from mint.rl_core.reward import as_score

_log = logging.getLogger("mint.rl_core")


@dataclass(frozen=True)
class Limits:
    """How scorings of one adapter are run, and what one that failed is worth."""

    owner: str
    """The adapter's class, for messages."""
    timeout_s: float | None
    timeout_score: float
    error_score: float | None
    max_concurrency: int
    blocking: bool

    @classmethod
    def of(cls, adapter: Any) -> "Limits":
        """The settings of an adapter or of its class.

        Raises:
            ConfigurationError: one of them cannot be meant.
        """
        owner = adapter if isinstance(adapter, type) else type(adapter)
        return cls(
            owner=owner.__name__,
            timeout_s=adapter.timeout_s,
            timeout_score=adapter.timeout_score,
            error_score=adapter.error_score,
            max_concurrency=adapter.max_concurrency,
            blocking=adapter.blocking,
        )

    def __post_init__(self) -> None:
        if self.timeout_s is not None and not is_positive(self.timeout_s):
            self._refuse("timeout_s", "a number of seconds above 0, or None for no limit")
        if not is_whole(self.max_concurrency, 1):
            self._refuse("max_concurrency", "how many scorings may run at once: 1 or more")
        if not isinstance(self.blocking, bool):
            self._refuse("blocking", "True or False")
        self._check_score("timeout_score")
        if self.error_score is not None:
            self._check_score("error_score")

    def _check_score(self, name: str) -> None:
        try:
            as_score(getattr(self, name))
        except (TypeError, ValueError):
            self._refuse(name, "a finite number: what such a scoring is worth")

    def _refuse(self, name: str, wanted: str) -> None:
        raise ConfigurationError(
            f"{self.owner}.{name} = {getattr(self, name)!r}: it has to be {wanted}."
        )


def warn_of_near_names(cls: type, base: type) -> None:
    """Name class attributes that look like a misspelt setting, which would be ignored without a word.

    A warning only: `timeout` may well be the class's own.
    """
    settings = [field.name for field in fields(Limits) if hasattr(base, field.name)]
    for name, value in vars(cls).items():
        if hasattr(base, name) or not isinstance(value, int | float):
            continue
        for setting in get_close_matches(name, settings, n=1, cutoff=0.8):
            _log.warning(
                "%s.%s is no setting of an adapter; did you mean %s?", cls.__name__, name, setting
            )
