"""What an adapter may know of the model whose responses it scores. Nobody is asked over a network."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mint.recipe.model_info import get_model_attributes

_HUB_CACHE = re.compile(r"models--(?P<owner>.+?)--(?P<name>.+)")
"""The folder of a model in the hub's cache."""
_DIGEST = re.compile(r"[0-9a-f]{32,64}")
"""A folder called after its content: that is no model's name."""
_QWEN_VERSION = re.compile(r"qwen-?(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class ModelInfo:
    """A model's family and sizes; None where nothing at hand tells."""

    model_name: str | None = None
    family: str | None = None
    """In lower case and with its generation where that has a format of its own: "qwen3", "qwen3_5",
    "llama", "smollm"; the beginning of the name where we do not know the family."""
    renderer_name: str | None = None
    """What writes its conversations: the one in use, else the recommended one."""
    vocab_size: int | None = None
    """Tokens of its tokenizer, added ones included; the model may have unused rows beyond."""
    context_length: int | None = None
    """Tokens of prompt and response together, as the model's config.json has it."""
    lora_rank: int | None = None

    def completed_by(self, other: "ModelInfo") -> "ModelInfo":
        """This, with what it does not know taken from another."""
        unknown = [name for name, value in vars(self).items() if value is None]
        return replace(self, **{name: getattr(other, name) for name in unknown})


def by_name(model_name: str) -> ModelInfo:
    """What a model's name tells."""
    told = get_model_attributes(model_name)
    version = _QWEN_VERSION.match(Path(model_name).name.lower())
    return ModelInfo(
        model_name=model_name,
        family=f"qwen{version[1].replace('.', '_')}" if version else told.family,
        renderer_name=next(iter(told.recommended_renderers), None),
    )


def by_tokenizer(tokenizer: Any) -> ModelInfo:
    """What a tokenizer tells: by its `name_or_path`, and by the config.json beside it if that is a
    folder."""
    source = getattr(tokenizer, "name_or_path", None)
    source = source if isinstance(source, str) and source else None
    name = source and _model_name(source)
    told = by_name(name) if name else ModelInfo()
    sizes = ModelInfo(vocab_size=_vocab_size(tokenizer))
    return sizes.completed_by(told).completed_by(_by_config(source) if source else ModelInfo())


def _model_name(source: str) -> str | None:
    """The model's name in what a tokenizer was loaded from, if it is there."""
    folder = Path(source).expanduser()
    if not folder.is_dir():
        return source
    for part in reversed(folder.parts):
        if cached := _HUB_CACHE.fullmatch(part):
            return f"{cached['owner']}/{cached['name']}"
    return None if _DIGEST.fullmatch(folder.name) else folder.name


def _by_config(source: str) -> ModelInfo:
    """From the config.json in a tokenizer's folder, which the server hands out with it."""
    try:
        config = json.loads((Path(source).expanduser() / "config.json").read_text())
    except (OSError, ValueError):
        return ModelInfo()
    length = config.get("max_position_embeddings")
    return ModelInfo(
        family=config.get("model_type"),
        context_length=length if isinstance(length, int) else None,
    )


def _vocab_size(tokenizer: Any) -> int | None:
    if hasattr(tokenizer, "__len__"):
        return len(tokenizer)
    told = getattr(tokenizer, "vocab_size", None)
    return told if isinstance(told, int) else None
