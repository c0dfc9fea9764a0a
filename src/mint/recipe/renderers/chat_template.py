"""A tokenizer's chat template as a function from messages to text."""

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NoReturn, TypeAlias

from mint.recipe.exceptions import RendererError
from mint.recipe.messages import Message

TemplateText: TypeAlias = Callable[[Sequence[Message], bool], str]
"""(messages, whether the assistant is asked for its turn) -> text."""


def template_of(tokenizer: Any) -> TemplateText:
    """The template, rendered by the tokenizer itself where it can, else in a sandbox of ours.

    Raises:
        RendererError: the tokenizer has no template.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise RendererError(
            f"the tokenizer ({getattr(tokenizer, 'name_or_path', type(tokenizer).__name__)}) has no "
            'chat template. Use "role_colon" for a base model, or a renderer of its family.'
        )
    render = (
        _by_the_tokenizer(tokenizer)
        if hasattr(tokenizer, "apply_chat_template")
        else _in_a_sandbox(tokenizer)
    )

    def text(messages: Sequence[Message], asks: bool) -> str:
        try:
            return render(list(messages), asks)
        except Exception as error:  # whatever a template's author made it raise
            roles = ", ".join(message["role"] for message in messages) or "none"
            raise RendererError(
                f"the chat template refuses messages with these roles: {roles} ({error})."
            ) from error

    return text


def _by_the_tokenizer(tokenizer: Any) -> TemplateText:
    def text(messages: Sequence[Message], asks: bool) -> str:
        return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=asks)

    return text


def _in_a_sandbox(tokenizer: Any) -> TemplateText:
    try:
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise RendererError(
            "a chat template needs jinja2: pip install 'mint-rl[recipe]'."
        ) from error
    sandbox = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    sandbox.filters["tojson"] = lambda value, **how: json.dumps(value, ensure_ascii=False, **how)
    template = sandbox.from_string(
        tokenizer.chat_template, globals={"raise_exception": _refuse, "strftime_now": _now}
    )
    names = {name: str(getattr(tokenizer, name, None) or "") for name in ("bos_token", "eos_token")}

    def text(messages: Sequence[Message], asks: bool) -> str:
        return template.render(messages=messages, add_generation_prompt=asks, **names)

    return text


def _refuse(message: str) -> NoReturn:
    raise RendererError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)
