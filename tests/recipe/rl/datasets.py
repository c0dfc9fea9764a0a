"""Data sets of builders that are told apart by their names."""

from collections.abc import Sequence
from dataclasses import dataclass

from mint.recipe.rl.types import Env, EnvGroupBuilder, RLDataset


@dataclass(frozen=True)
class NamedBuilder(EnvGroupBuilder):
    name: str

    async def make_envs(self) -> Sequence[Env]:
        return []


class ListDataset(RLDataset):
    """Batches as given, one word per group: ListDataset("a b", "c") has two batches."""

    def __init__(self, *batches: str) -> None:
        self._batches = [[NamedBuilder(name) for name in batch.split()] for batch in batches]

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        return self._batches[index]

    def __len__(self) -> int:
        return len(self._batches)


def names(batch: Sequence[EnvGroupBuilder]) -> list[str]:
    return [builder.name for builder in batch if isinstance(builder, NamedBuilder)]
