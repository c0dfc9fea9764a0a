"""CheckpointRef: the name of saved weights, in every spelling we accept."""

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum

from mint.core.errors import UserError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_REF = re.compile(r"(?:tinker|mint)://([^/]+)/(weights|sampler_weights|external_weights)/([^/]+)")
_SHORT = re.compile(r"ckpt_[0-9a-f]{12}")


class CheckpointKind(StrEnum):
    """Values are the path segments of the wire."""

    TRAINING = "weights"
    """Adapter and optimizer state: training can go on from it."""
    SAMPLER = "sampler_weights"
    """Adapter only."""
    EXTERNAL = "external_weights"
    """Adapter only, saved to be taken elsewhere. Clients before 0.30 do not know the word."""


@dataclass(frozen=True)
class CheckpointRef:
    """One checkpoint: which model saved it, as what, under which name."""

    model_id: str
    kind: CheckpointKind
    name: str

    def __str__(self) -> str:
        return f"tinker://{self.model_id}/{self.kind.value}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> "CheckpointRef":
        """Read `tinker://<model_id>/<kind>/<name>` (or `mint://…`), kind one of CheckpointKind.

        Raises:
            UserError: any other form.
        """
        found = _REF.fullmatch(text)
        if not found:
            raise UserError(
                f"{text!r} is not a checkpoint path. Expected tinker://<model_id>/weights/<name> "
                "or tinker://<model_id>/sampler_weights/<name>, as save_state() and "
                "save_weights_for_sampler() return them."
            )
        return cls(found[1], CheckpointKind(found[2]), found[3])


def short_id(path: str) -> str:
    """The short name of a checkpoint, `ckpt_` and twelve digits: for people and for scripts of
    before. It follows from the path, so it needs no place of its own to be kept."""
    return f"ckpt_{hashlib.sha256(path.encode()).hexdigest()[:12]}"


def is_short_id(text: str) -> bool:
    return bool(_SHORT.fullmatch(text))


def check_name(name: str) -> str:
    """Give `name` back if it can be one segment of a checkpoint path.

    Raises:
        UserError: it is empty, too long, or holds anything but letters, digits, ".", "_", "-".
    """
    if not _NAME.fullmatch(name):
        raise UserError(
            f"checkpoint name {name!r}: use 1 to 200 letters, digits, '.', '_' or '-', beginning "
            "with a letter or digit. It becomes one segment of the checkpoint's path."
        )
    return name


LONGEST_TTL_S = 100 * 365 * 24 * 3600
"""A century: a longer time to live may end beyond the last date there is."""


def check_ttl(ttl_seconds: int | None) -> int | None:
    """Give a time to live back if it can be one; None: there is no end.

    Raises:
        UserError: it is below one second, or beyond a century.
    """
    if ttl_seconds is not None and not 1 <= ttl_seconds <= LONGEST_TTL_S:
        raise UserError(f"ttl_seconds={ttl_seconds}: give 1 to {LONGEST_TTL_S}, or leave it out.")
    return ttl_seconds
