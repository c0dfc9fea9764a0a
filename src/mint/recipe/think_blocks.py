"""Think blocks in a response's text: the reasoning that a model writes before its answer."""

from dataclasses import dataclass

OPEN, CLOSE = "<think>", "</think>"


@dataclass(frozen=True)
class Reasoned:
    """An assistant's message taken apart. Line breaks around the tags belong to the block."""

    reasoning: str
    text: str


def read_reasoning(text: str, *, is_open: bool = False) -> Reasoned:
    """A response taken apart. A block that is never closed is reasoning to its end.

    Args:
        is_open: the block was opened by the prompt.
    """
    before, closed, afterwards = text.partition(CLOSE)
    opened = is_open or before.lstrip().startswith(OPEN)
    if not closed and not opened:
        return Reasoned("", text)
    return Reasoned(before.rpartition(OPEN)[2].strip("\n"), afterwards.lstrip("\n"))
