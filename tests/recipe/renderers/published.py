"""What the models' published chat templates make of our conversations.

The templates are Qwen's (Apache-2.0: the key "chat_template" in tokenizer_config.json of
Qwen/Qwen3-0.6B, chat_template.jinja of Qwen/Qwen3.5-4B) and are not kept here; what they answer is,
in golden/. With a folder that holds both as qwen3.jinja and qwen3_5.jinja, named by
MINT_CHAT_TEMPLATES, the tests ask the templates themselves as well, and

    python -m tests.recipe.renderers.published

writes golden/ anew.
"""

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.recipe.renderers.conversations import CLOCK, NAMED, WEATHER, system, user
from tests.recipe.renderers.qwen import Template

FAMILIES = ("qwen3", "qwen3_5")
_GOLDEN = Path(__file__).parent / "golden"

Answers = Mapping[str, Mapping[str, str]]
"""Conversation -> form ("prompt", "prompt without thinking", "example") -> text."""


def golden(family: str) -> Answers:
    return json.loads(_path(family).read_text())


@cache
def template(family: str) -> Template | None:
    """The template itself, where there is one."""
    folder = os.environ.get("MINT_CHAT_TEMPLATES")
    return Template((Path(folder) / f"{family}.jinja").read_text()) if folder else None


def answers_of(family: str, ask: Template) -> Answers:
    parsed = family == "qwen3_5"  # it goes through the arguments; Qwen3 takes JSON text as it is
    answers: dict[str, dict[str, str]] = {}
    for name, messages in NAMED.items():
        if messages[-1]["role"] == "assistant":
            answers[name] = {"example": ask(messages, parsed_arguments=parsed)}
        else:
            answers[name] = {
                "prompt": ask(messages, asks=True, parsed_arguments=parsed),
                "prompt without thinking": ask(
                    messages, asks=True, thinking=False, parsed_arguments=parsed
                ),
            }
    for name, opening in {"tools": [], "tools and a system prompt": [system("Be kind.")]}.items():
        text = ask([*opening, user("Hi")], tools=[WEATHER, CLOCK], asks=True)
        answers[name] = {"prompt": text}
    return answers


def _path(family: str) -> Path:
    return _GOLDEN / f"{family}.json"


if __name__ == "__main__":
    for family in FAMILIES:
        ask = template(family)
        assert ask is not None, "set MINT_CHAT_TEMPLATES to a folder with both templates"
        text = json.dumps(answers_of(family, ask), indent=1, ensure_ascii=False)
        _path(family).write_text(text + "\n")
