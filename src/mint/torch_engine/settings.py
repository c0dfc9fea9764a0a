"""EngineSettings: what one engine process serves, and on what."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """Read once at start."""

    models: tuple[str, ...]
    """Base models on offer, "NAME" or "NAME=PATH". Their weights load on first use."""
    on_demand: bool = False
    """Also offer any model that can be found by name (an embedded server's way)."""
    device: str = "cpu"
    dtype: str = "float32"
    """Of the base weights and activations; adapters, gradients and logits are always float32."""
    threads: int | None = None
    """Of torch's kernels; None leaves torch's own choice."""
    memory_limit_bytes: int | None = None
    """Weights, adapters and KV cache together, looked at when a base model is loaded or an adapter made:
    idle bases make room, and what would go beyond is refused. None: 80 % of what is free when the
    engine starts."""
    max_sequences: int = 64
    """Sequences decoded side by side, per base model."""
    kv_tokens: int = 65536
    """Tokens the KV cache of one base model may hold."""
    scratch: Path
    """Folder for weights that leave memory for a while; emptied at start."""
