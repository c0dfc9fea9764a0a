"""What `run_grpo` trains on: a batch a step, as long as it has steps."""

from collections.abc import Sequence
from typing import Any

import chz

from mint.recipe.rl.types import RLDataset, RLDatasetBuilder
from mint.rl_core.adapter import RLAdapter
from mint.rl_core.config import RLConfig
from mint.rl_core.environment import AdapterGroupBuilder
from mint.rl_core.group_maker import GroupMaker
from mint.rl_core.running import away_from_loop
from mint.rl_core.sample_based import samples_of


class GrpoDataset(RLDataset):
    """One batch a step: new samples of the adapter, or the next prompts of a list that has no end."""

    def __init__(self, builder: "GrpoDatasetBuilder") -> None:
        self._adapter, self._prompts, self._cfg = builder.adapter, builder.prompts, builder.cfg
        self._maker = GroupMaker(builder.adapter, self._cfg.model, lora_rank=self._cfg.rank)

    def bind(self, training_client: Any) -> None:
        self._maker.bind(training_client)
        vocabulary = self._adapter.get_model_info().vocab_size
        shown = "unknown" if vocabulary is None else f"{vocabulary:,}"
        print(f"Model: {self._cfg.model}, Vocab: {shown}", flush=True)

    def get_batch(self, index: int) -> Sequence[AdapterGroupBuilder]:
        """The groups of one step.

        Raises:
            DataFormatError: `build_dataset` gave no samples, or `make_prompt` no tokens.
        """
        return away_from_loop(lambda: self._batch(index))  # it calls methods of the user's

    def __len__(self) -> int:
        return self._cfg.steps

    def _batch(self, index: int) -> list[AdapterGroupBuilder]:
        if self._prompts is None:
            questions = samples_of(self._adapter, most=self._cfg.batch)
        else:
            questions = self._next_prompts(self._prompts, index)
        return [self._maker.group(question, self._cfg.group) for question in questions]

    def _next_prompts(self, prompts: Sequence[Any], index: int) -> list[Any]:
        count = len(prompts)
        batch = min(self._cfg.batch, count)  # once each: twice would be two groups of one problem
        return [prompts[(index * batch + place) % count] for place in range(batch)]


@chz.chz
class GrpoDatasetBuilder(RLDatasetBuilder):
    """Makes the data set of `run_grpo`."""

    adapter: RLAdapter
    prompts: Sequence[Any] | None
    """None: the adapter's own samples."""
    cfg: RLConfig

    async def __call__(self) -> tuple[GrpoDataset, None]:
        return GrpoDataset(self), None
