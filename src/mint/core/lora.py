"""LoraSpec: the shape of one adapter."""

from dataclasses import dataclass

from mint.core.errors import ConfigError

MAX_RANK = 1024


@dataclass(frozen=True, kw_only=True)
class LoraSpec:
    """One LoRA adapter: y = W x + (alpha / rank) B A x (Hu et al. 2021, arXiv:2106.09685).

    A is drawn from `seed`, B starts at zero, so a new adapter leaves the base model unchanged.
    """

    rank: int = 32
    alpha: float = 32.0
    """Scale. Fixed at 32 as upstream has it, so that a learning rate keeps its meaning over ranks
    (Schulman et al. 2025, "LoRA Without Regret")."""
    seed: int | None = None
    """Seed of A. None: derived from the model id, so no two models share it by accident."""
    train_attn: bool = True
    train_mlp: bool = True
    train_unembed: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.rank <= MAX_RANK:
            raise ConfigError(f"lora rank={self.rank} is outside 1..{MAX_RANK}.")
        if not (self.train_attn or self.train_mlp or self.train_unembed):
            raise ConfigError(
                "train_attn, train_mlp and train_unembed are all false: nothing would be trained. "
                "Set at least one of them."
            )
