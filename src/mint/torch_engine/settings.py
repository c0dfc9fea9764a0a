"""EngineSettings: what one engine process serves, and on what."""

from dataclasses import dataclass
from pathlib import Path

from mint.core.errors import ConfigError
from mint.core.parity import largest_gap


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """Read once at start."""

    models: tuple[str, ...]
    """Base models on offer, "NAME" or "NAME=PATH". Their weights load on first use."""
    preload: bool = False
    """Or when `preload` is called, rather than on first use."""
    on_demand: bool = False
    """Also offer any model that can be found by name (an embedded server's way)."""
    device: str = "cpu"
    dtype: str = "float32"
    """Of the base weights and activations; adapters, gradients and logits are always float32."""
    threads: int | None = None
    """Of torch's kernels; None leaves torch's own choice."""
    decode_threads: int | None = None
    """Of those, for one product of base weights where few rows are computed, as in a decode round;
    what else there is to do for few rows runs on one (threads.py). None: as many as pay."""
    memory_limit_bytes: int | None = None
    """Weights, adapters and KV cache together, looked at when a base model is loaded or an adapter made:
    idle bases make room, and what would go beyond is refused. None: 80 % of what is free when the
    engine starts."""
    max_sequences: int = 64
    """Sequences decoded side by side, per base model."""
    kv_tokens: int = 65536
    """Tokens the KV cache of one base model may hold."""
    kv_layout: str = "auto"
    """How it lays them out: see kv_layouts."""
    scratch: Path
    """Folder for weights that leave memory for a while; emptied at start."""
    batch_tokens: int = 640
    """Packed tokens of one training micro-batch at most; memory that is short makes it less. On a CPU
    the products are at their best from some 200 on, and 640 tokens take 0.9 GB of activations for a
    model of 135 M parameters. A GPU wants some thousands."""
    training_share: float = 0.5
    """Of the computing, while both sampling and training wait. A turn of training is as long as a
    decode round times share / (1 - share), so at a half two tokens of a sequence are two rounds apart
    while a pass runs. More makes training quicker and that gap longer."""
    parity_warning: float | None = None
    """Gap in nats between the logprobs of trainer and sampler, on data sampled from the very weights
    in training, above which the log warns. None: core.parity.LARGEST_GAP of the dtype."""

    def __post_init__(self) -> None:
        if not 0 < self.training_share < 1:
            raise ConfigError(
                f"training_share={self.training_share}: give a number between 0 and 1, without "
                "both ends; 0.5 shares the device evenly."
            )
        if self.decode_threads is not None and self.decode_threads < 1:
            raise ConfigError(f"decode_threads={self.decode_threads}: give at least 1.")
        if self.batch_tokens < 1:
            raise ConfigError(f"batch_tokens={self.batch_tokens}: give at least 1.")

    @property
    def parity_threshold(self) -> float:
        if self.parity_warning is not None:
            return self.parity_warning
        return largest_gap(self.dtype)
