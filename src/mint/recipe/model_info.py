"""What a model is, as far as its name tells: family, size, and the renderer it was trained with."""

import logging
import re
from dataclasses import dataclass

from mint.recipe.exceptions import RendererError
from mint.recipe.tokenizers import has_chat_template, without_variant

logger = logging.getLogger(__name__)

_EXACT = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": ("hf_template",),
}
"""Names that say too little, or the wrong thing. The first is the embedded server's model, which
need not have been fetched when its renderer is asked for."""

_QWEN3 = ("qwen3", "qwen3_disable_thinking")
_QWEN3_5 = ("qwen3_5", "qwen3_5_disable_thinking")
_PATTERNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"qwen3\.[56].*-base", ("role_colon",)),
    (r"qwen3\.[56]", _QWEN3_5),
    (r"qwen3.*instruct-2507", ("qwen3_instruct",)),
    (r"qwen3-(coder|next)-.*instruct", ("qwen3_instruct",)),
    (r"qwen3-.*-base", ("role_colon",)),
    (r"qwen3-", _QWEN3),
    (r"qwen2\.5.*instruct", ("qwen3_instruct",)),
    (r"(meta-)?llama-3.*instruct", ("llama3",)),
    (r".*-base(-|$)", ("role_colon",)),
)
"""Beginnings of a model's own name, the first that fits. Best renderer first."""

_VISION = re.compile(r"-vl(-|$)|^qwen[\d.]*-?vl")
_CHAT = re.compile(r"instruct|chat|-it(-|$)|-rlhf|-sft|-dpo")
_SIZE = re.compile(r"(?:^|[-_])(\d+(?:\.\d+)?[bm])(?=[-_.]|$)")
_FAMILIES = ("qwen", "llama", "smollm", "deepseek", "mistral", "gemma", "phi", "glm", "kimi")


# --------------------------------------------------------------- renderers


def get_recommended_renderer_name(model_name: str) -> str:
    """The name of the renderer that writes a conversation as the model was trained to read it.

    Raises:
        RendererError: the model reads images too, and we have no renderer for those yet.
    """
    return get_recommended_renderer_names(model_name)[0]


def get_recommended_renderer_names(model_name: str) -> list[str]:
    """Renderers that fit a model, best first: by its name, else by the chat template of its
    tokenizer, if that is on this machine. Nothing is fetched.

    Raises:
        RendererError: the model reads images too, and we have no renderer for those yet.
    """
    names, is_guess = _renderers(model_name)
    if is_guess:
        logger.warning(
            "%s: neither its name nor a tokenizer on this machine says how it was trained to read "
            'conversations; "%s" is a guess. Pass renderer_name if it should be another.',
            model_name,
            names[0],
        )
    return list(names)


def _renderers(model_name: str) -> tuple[tuple[str, ...], bool]:
    """Renderers, and whether they are no more than a guess."""
    known = _by_name(model_name)
    if known is not None:
        return known, False
    has_template = has_chat_template(model_name)
    is_guess = has_template is None
    if is_guess:
        has_template = bool(_CHAT.search(_own_name(model_name)))
    return ("hf_template" if has_template else "role_colon",), is_guess


def _by_name(model_name: str) -> tuple[str, ...] | None:
    """By exact name or pattern; None if the name says nothing."""
    exact = _EXACT.get(without_variant(model_name))
    if exact:
        return exact
    own = _own_name(model_name)
    if _VISION.search(own):
        raise RendererError(
            f"{model_name} reads images and text, and there is no renderer for its family yet. Its "
            'text side alone: pass renderer_name ("qwen3_instruct" or "hf_template"), or register '
            "a renderer of your own (register_renderer)."
        )
    return next((names for pattern, names in _PATTERNS if re.match(pattern, own)), None)


def _own_name(model_name: str) -> str:
    """Without who made it and without a serving variant, in lower case."""
    return without_variant(model_name).rstrip("/").rpartition("/")[2].lower()


# -------------------------------------------------------------- attributes


@dataclass(frozen=True)
class ModelAttributes:
    """What a model's name tells of it."""

    name: str
    family: str
    """In lower case, such as "qwen"; the beginning of the name where we do not know the family."""
    size: str | None
    """As the name has it, such as "0.6B"; None if it does not say."""
    is_chat: bool
    """Trained to hold conversations, rather than to continue text."""
    is_vl: bool
    """Reads images, too."""
    recommended_renderers: tuple[str, ...]
    """Best first. Empty where we have none."""
    is_guess: bool
    """Neither a rule of ours nor a tokenizer at hand knows it; the rest is what it looks like."""


def get_model_attributes(model_name: str) -> ModelAttributes:
    """What the name of a model tells; of an unknown one the best guess, marked as such."""
    own = _own_name(model_name)
    is_vl = bool(_VISION.search(own))
    names, is_guess = ((), False) if is_vl else _renderers(model_name)
    size = _SIZE.search(own)
    family = next((family for family in _FAMILIES if family in own), None)
    return ModelAttributes(
        name=model_name,
        family=family or re.split(r"[-_.\d]", own)[0] or own,
        size=size.group(1).upper() if size else None,
        is_chat=is_vl or "role_colon" not in names,
        is_vl=is_vl,
        recommended_renderers=names,
        is_guess=is_guess or family is None,
    )
