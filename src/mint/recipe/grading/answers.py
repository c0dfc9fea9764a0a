r"""Where a response states its answer: in a tag, or in a LaTeX box.

All of these read a text once, from front to back, whatever a model wrote into it.
"""

import re

from mint.recipe.think_blocks import read_reasoning

_BOXES = re.compile(r"\\(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
"""What matters to nesting. `\\{` and `\\}` are drawn braces, and are passed over as one piece."""

_TAG_NAME = re.compile(r"[A-Za-z][\w-]*")


def answer_text(text: str) -> str | None:
    r"""What the response marks as its answer: the last `<answer>` tag, else the last `\boxed{}`.

    The box in the tag, if it has one. None if nothing is marked. Whoever marks an answer has chosen it: graders look nowhere else then.
    """
    tagged = extract_tag(text)
    boxed = extract_boxed(text if tagged is None else tagged)
    return tagged if boxed is None else boxed


def extract_tag(text: str, tag: str = "answer") -> str | None:
    """The content of the last complete `<tag>…</tag>`, without the white space around it.

    Upper and lower case are the same. An opening tag that another one follows opens nothing.

    Raises:
        ValueError: `tag` is not the name of a tag.
    """
    content = None
    opened: int | None = None
    for found in re.finditer(rf"<(/?){_checked(tag)}>", text, re.IGNORECASE):
        if not found[1]:
            opened = found.end()
        elif opened is not None:
            content, opened = text[opened : found.start()], None
    return None if content is None else content.strip()


def extract_boxed(text: str) -> str | None:
    r"""The content of the last `\boxed{…}` that is closed; braces inside it may nest.

    `\fbox` is the same. Of a box within a box, the inner one.
    """
    content = None
    opened_last = -1
    open_braces: list[tuple[int, bool]] = []  # where its content begins, and whether it is a box's
    for found in _BOXES.finditer(text):
        piece = found[0]
        if piece == "}":
            start, is_box = open_braces.pop() if open_braces else (0, False)
            if is_box and start > opened_last:
                content, opened_last = (start, found.start()), start
        elif piece.endswith("{") and piece != "\\{":
            open_braces.append((found.end(), piece != "{"))
    return None if content is None else text[slice(*content)].strip()


def follows_tags(text: str, tags: tuple[str, ...] = ("think", "answer")) -> bool:
    """Whether the text is these blocks, each once and in this order, with only white space between.

    Raises:
        ValueError: one of `tags` is not the name of a tag, or there is none.
    """
    if not tags:
        raise ValueError("follows_tags: name at least one tag.")
    ends = re.findall(rf"<(/?)({'|'.join(map(_checked, tags))})>", text)
    if ends != [(slash, tag) for tag in tags for slash in ("", "/")]:
        return False
    blocks = r"\s*".join(rf"<{tag}>.*</{tag}>" for tag in tags)  # each tag is there exactly once
    return re.fullmatch(rf"\s*{blocks}\s*", text, re.DOTALL) is not None


def without_reasoning(text: str) -> str:
    """What the response says after its `</think>`; all of it where it has no think block.

    Nothing where the block was never closed: the model ran out of tokens before it answered.
    """
    return read_reasoning(text).text


def _checked(tag: str) -> str:
    if not _TAG_NAME.fullmatch(tag):
        raise ValueError(
            f"{tag!r} is not the name of a tag. Give it without brackets, such as 'answer'."
        )
    return re.escape(tag)
