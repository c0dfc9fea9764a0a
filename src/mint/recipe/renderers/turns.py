"""What families do alike: text of a message that has to be text, and the end of a response."""

import logging
from collections.abc import Sequence

from mint.recipe.exceptions import RendererError
from mint.recipe.messages import Message, ensure_list
from mint.recipe.renderers.layout import ParseTermination

logger = logging.getLogger(__name__)


def plain_text(message: Message) -> str:
    """The content of a message that has to be text and nothing else.

    Raises:
        RendererError: it has another part, or calls tools.
    """
    if message.get("tool_calls"):
        raise RendererError(
            f"a {message['role']} message calls tools, and this renderer has no form for that. Say "
            "it in the content, or use a renderer of the qwen3 family."
        )
    text = ""
    for part in ensure_list(message["content"]):
        if part["type"] != "text":
            raise RendererError(
                f"a {message['role']} message has a part of type {part['type']!r}, and this "
                "renderer takes text only. Leave the part out (remove_thinking for reasoning), or "
                "use the renderer of a family that has it."
            )
        text += part["text"]
    return text


def until_stop(
    response: Sequence[int], stop: int, family: object
) -> tuple[list[int], ParseTermination]:
    """What was written before the end of the turn, and how it ended.

    More than one end is malformed: the sampler ran on past the first. That is said once per
    renderer (`family`), and one bad sample does not end a run.
    """
    ends = response.count(stop)
    if ends == 0:
        return list(response), ParseTermination.MALFORMED
    written = list(response[: response.index(stop)])
    if ends == 1:
        return written, ParseTermination.STOP_SEQUENCE
    say_once_that_it_ran_on(ends, family)
    return written, ParseTermination.MALFORMED


def say_once_that_it_ran_on(ends: int, family: object) -> None:
    if id(family) not in _told:
        _told.add(id(family))
        logger.warning(
            "a response ends %d times; it is cut at the first end and counts as malformed. Pass "
            "the renderer's get_stop_sequences() to the sampler, which then stops there.",
            ends,
        )


_told: set[int] = set()
"""Renderers, by address: one that comes to lie where another was stays silent, which harms no one."""
