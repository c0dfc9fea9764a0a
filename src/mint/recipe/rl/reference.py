"""The model that a run is kept close to, and the penalty for leaving it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mint import Datum
from mint.recipe.rl.config import Config
from mint.recipe.rl.kl import TokenUsage, incorporate_kl_penalty
from mint.recipe.service import Service
from mint.recipe.stores.timing import span


@dataclass(frozen=True)
class Reference:
    """A reference model with the weight of its penalty."""

    sampling_client: Any
    coef: float
    discount: float
    temperature: float
    """At which it scores: that of the rollouts where the server can, so that both logprobs are of
    the same kind of distribution; else 1."""

    async def penalise(self, data_D: Sequence[Datum]) -> tuple[dict[str, float], TokenUsage]:
        """Take the penalty off the advantages of the datums, in place.

        Centred over `data_D`, so what belongs to one minibatch comes in one call.
        """
        with span("compute_kl_penalty"):
            return await incorporate_kl_penalty(
                list(data_D), self.sampling_client, self.coef, self.discount,
                temperature=self.temperature,
            )  # fmt: skip


async def reference_of(config: Config, service: Service, temperature: float) -> Reference | None:
    """The reference of a run, or None where nothing is penalised."""
    chosen = config.kl_reference_config
    if config.kl_penalty_coef == 0 or chosen is None:
        return None
    if chosen.load_checkpoint_path is not None:
        client = await service.create_sampling_client(model_path=chosen.load_checkpoint_path)
    else:
        client = await service.create_sampling_client(base_model=chosen.base_model)
    return Reference(client, config.kl_penalty_coef, config.kl_discount_factor, temperature)
