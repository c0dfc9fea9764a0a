"""Batches of prompts for an adapter, as the recipes take them."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import chz

from mint.recipe.exceptions import ConfigurationError
from mint.recipe.rl.types import RLDataset, RLDatasetBuilder
from mint.rl_core.adapter import RLAdapter
from mint.rl_core.environment import AdapterGroupBuilder
from mint.rl_core.group_maker import AdapterSource, GroupMaker, check_source
from mint.rl_core.prompts import as_prompts, filled
from mint.rl_core.running import away_from_loop
from mint.rl_core.sample_based import is_sample_based, samples_of


class AdapterDataset(RLDataset):
    """A group for each prompt, in order, `batch_size` of them a batch; the last batch has what is left.

    Args:
        prompts: or samples, where the adapter scores samples.
    """

    def __init__(
        self, maker: GroupMaker, prompts: Sequence[Any], batch_size: int, group_size: int
    ) -> None:
        self._maker = maker
        self._prompts = prompts
        self._batch_size = batch_size
        self._group_size = group_size

    def bind(self, training_client: Any) -> None:
        self._maker.bind(training_client)

    def get_batch(self, index: int) -> Sequence[AdapterGroupBuilder]:
        """The groups of batch `index`. Prompts of words are rendered here, 0.1 ms for a short one.

        Raises:
            IndexError: there is no such batch.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index}: there are {len(self)}, counted from 0.")
        start = index * self._batch_size
        prompts = self._prompts[start : start + self._batch_size]
        return away_from_loop(  # it calls methods of the user's
            lambda: [self._maker.group(prompt, self._group_size) for prompt in prompts]
        )

    def __len__(self) -> int:
        return -(-len(self._prompts) // self._batch_size)


@chz.chz
class AdapterDatasetBuilder(RLDatasetBuilder):
    """Makes the batches of a run from an adapter and its prompts."""

    adapter: AdapterSource
    """One for all groups, which scores several at once; or a class or function that makes one for each
    group, of the tokenizer or of nothing."""
    prompts: Sequence[Any] | None = None
    """Texts (a user's message each), lists of messages, or tokens, which are sent as they are. For an
    adapter that scores samples: samples; None: what its `build_dataset` gives, asked once."""
    batch_size: int
    """Prompts a step."""
    group_size: int
    """Responses to each."""
    model_name: str
    renderer_name: str | None = None
    """Writes prompts of words. None: the recommended one of the model."""
    lora_rank: int | None = None
    """Of the adapter that is trained, for RLAdapter.get_model_info; None: not told."""
    seed: int | None = 0
    """Prompts are shuffled once, by this seed alone; each epoch goes through them in that order. None:
    they stay as they are given."""
    test_prompts: Sequence[Any] | None = None
    """To be responded to once each in an evaluation."""

    @chz.validate
    def _is_meant(self) -> None:
        check_source(self.adapter)
        for name in ("batch_size", "group_size"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name}={getattr(self, name)}: give 1 or more.")

    async def __call__(self) -> tuple[AdapterDataset, AdapterDataset | None]:
        """The data set, and one of the test prompts, if there are any.

        Raises:
            DataFormatError: a prompt has no form that can be sent; or there are no prompts or samples.
        """
        maker = GroupMaker(
            self.adapter, self.model_name, self.renderer_name, lora_rank=self.lora_rank
        )
        prompts = await asyncio.to_thread(self._listed, self.prompts)  # it calls a user's method
        if self.seed is not None:
            random.Random(self.seed).shuffle(prompts)
        train = AdapterDataset(maker, prompts, self.batch_size, self.group_size)
        if not self.test_prompts:
            return train, None
        test = self._listed(self.test_prompts)
        return train, AdapterDataset(maker, test, max(self.batch_size, len(test)), 1)

    def _listed(self, prompts: Any) -> list[Any]:
        if not is_sample_based(self.adapter):
            return as_prompts(prompts)
        if prompts is not None:
            return filled(prompts)
        if not isinstance(self.adapter, RLAdapter):
            raise ConfigurationError(
                "an adapter made for each group cannot be asked for samples before there is a group: "
                "give them as `prompts`."
            )
        return samples_of(self.adapter)
