"""Adapters that score samples, in the form of those that score tokens.

From the wrapper on there is one path: the sample is bound to it, everything else is its adapter's.
"""

import asyncio
import inspect
import itertools
from typing import Any

from mint import ModelInput
from mint.recipe.exceptions import DataFormatError
from mint.rl_core.adapter import RLAdapter
from mint.rl_core.prompts import tokens_of
from mint.rl_core.scoring import share_places
from mint.rl_core.shapes import shape_of

_OF_THE_ADAPTER = (
    "name", "timeout_s", "timeout_score", "error_score", "max_concurrency", "blocking",
    "tokenizer", "model_info", "seed",
)  # fmt: skip
"""What the wrapper has from its adapter, however that came by it."""


def is_sample_based(adapter: Any) -> bool:
    """Whether an adapter, or a class of adapters, scores samples."""
    kind = adapter if isinstance(adapter, type) else type(adapter)
    return issubclass(kind, RLAdapter) and shape_of(kind).kind == "sample-based"


def samples_of(adapter: RLAdapter, most: int | None = None) -> list[Any]:
    """The samples that an adapter's `build_dataset` gives, which may be an `async def`; not to be
    called where an event loop runs.

    Args:
        most: the first so many of them; None: all.

    Raises:
        DataFormatError: it gave none.
    """
    name = f"{type(adapter).__name__}.build_dataset"
    built: Any = adapter.build_dataset()
    if inspect.iscoroutine(built):
        built = asyncio.run(built)
    try:
        samples = list(itertools.islice(built, most))
    except TypeError:
        raise DataFormatError(
            f"{name} gave {type(built).__name__} {built!r:.60}. It has to give a list of samples."
        ) from None
    if not samples:
        raise DataFormatError(f"{name} gave no samples, so there is nothing to ask.")
    return samples


def prompt_of(adapter: RLAdapter, sample: Any, tokenizer: Any) -> ModelInput:
    """What the model is asked for a sample.

    Raises:
        DataFormatError: `make_prompt` gave no tokens.
    """
    name = f"{type(adapter).__name__}.make_prompt"
    encoded = adapter.make_prompt(sample, tokenizer)
    if isinstance(encoded, str):
        raise DataFormatError(
            f"{name} gave the text {encoded!r:.60}. Give its tokens: tokenizer.encode(text), or "
            "tokenizer.apply_chat_template(messages, add_generation_prompt=True)."
        )
    return tokens_of(encoded, f"what {name} gave")


class SampleScorer(RLAdapter):
    """Scores responses to one sample by the `compute_reward` of its adapter.

    The text is decoded with special tokens kept, so that an adapter can see whether the response
    ended.
    """

    def __init__(self, adapter: RLAdapter, sample: Any) -> None:
        self._adapter = adapter
        self._sample = sample
        vars(self).update({name: getattr(adapter, name) for name in _OF_THE_ADAPTER})
        share_places(self, of=adapter)

    def __call__(self, prompt: ModelInput, response: ModelInput) -> Any:
        """A Reward, a number, or the promise of one where `compute_reward` is a coroutine function."""
        text = self._adapter.get_tokenizer().decode(response.to_ints())
        return self._adapter.compute_reward(text, self._sample)

    def speaks_for(self) -> tuple[type, str]:
        return type(self._adapter), "compute_reward"
