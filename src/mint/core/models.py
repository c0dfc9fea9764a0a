"""ServedModel: what a base model tells about itself before its weights are loaded."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """One base model this server offers."""

    name: str
    """As clients ask for it: the hub's name where there is one."""
    architecture: str
    """transformers' model_type, such as "llama" or "qwen3"."""
    vocab_size: int
    max_context: int
    """Tokens of prompt and continuation together."""
    parameters: int
    dtype: str
    device: str
    tokenizer_folder: str
    """Local folder with tokenizer.json and tokenizer_config.json."""
