"""Text of unknown origin, such as what a model wrote, made safe to look at."""

import re

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff]"
)
"""Controls, zero-width and direction characters, and halves of surrogate pairs. Not tab and not
line feed, which are layout."""


def visible(text: object) -> str:
    """The text with its unseen characters as their numbers, such as [U+202E]."""
    return _UNSEEN.sub(lambda found: f"[U+{ord(found[0]):04X}]", str(text))
