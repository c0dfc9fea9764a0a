"""From a prompt, or a sample, to its group: who scores it, what is sent, what ends a response."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mint.recipe.exceptions import ConfigurationError
from mint.recipe.model_info import get_recommended_renderer_name
from mint.recipe.renderers import get_renderer
from mint.recipe.tokenizers import get_tokenizer, provide_from
from mint.rl_core.adapter import RLAdapter
from mint.rl_core.environment import AdapterGroupBuilder
from mint.rl_core.prompts import as_sent, end_token, is_rendered, tokens_of
from mint.rl_core.sample_based import SampleScorer, is_sample_based, prompt_of

AdapterSource: TypeAlias = RLAdapter | Callable[..., RLAdapter]
"""An adapter, for all groups; or a class or function that makes one for each, of the tokenizer or of
nothing."""

AN_ADAPTER = "an object of a subclass of RLAdapter, with `def __call__(self, prompt, response)`"


@dataclass
class GroupMaker:
    """Makes groups for one adapter and one model."""

    adapter: AdapterSource
    model_name: str
    renderer_name: str | None = None
    """Writes prompts of words. None: the recommended one of the model."""
    lora_rank: int | None = None
    """Told to the adapter."""
    _client: Any = field(default=None, init=False)
    _known_tokenizer: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        check_source(self.adapter)

    def bind(self, training_client: Any) -> None:
        """Let the adapter know the model of a run. May fetch a tokenizer."""
        self._client = training_client
        self._known_tokenizer = provide_from(training_client, self.model_name)
        if isinstance(self.adapter, RLAdapter):
            self._introduce(self.adapter)

    @property
    def tokenizer(self) -> Any:
        """The model's: from the client that it is bound to, or by its name."""
        if self._known_tokenizer is None:
            self._known_tokenizer = get_tokenizer(self.model_name)
        return self._known_tokenizer

    def group(self, prompt: Any, group_size: int) -> AdapterGroupBuilder:
        """The group of one prompt; of a sample, where the adapter scores samples."""
        adapter = self._adapter()
        if is_sample_based(adapter):
            scorer: RLAdapter = SampleScorer(adapter, prompt)
            sent = prompt_of(adapter, prompt, adapter.get_tokenizer())
            stop = [end_token(self.tokenizer)]
        elif is_rendered(prompt):
            scorer, (sent, stop) = adapter, as_sent(prompt, self._renderer())
        else:
            scorer, sent = adapter, tokens_of(prompt, "a prompt")
            stop = [end_token(self.tokenizer)]
        return AdapterGroupBuilder(scorer, sent, stop, group_size, tags=(adapter.name,))

    def _adapter(self) -> RLAdapter:
        if isinstance(self.adapter, RLAdapter):
            if self.adapter.tokenizer is None:
                self._introduce(self.adapter)
            return self.adapter
        takes_tokenizer = _can_be_given(self.adapter, None)
        made = self.adapter(self.tokenizer) if takes_tokenizer else self.adapter()
        if not isinstance(made, RLAdapter):
            raise ConfigurationError(
                f"{_name(self.adapter)} made {type(made).__name__}, and not an RLAdapter."
            )
        self._introduce(made)
        return made

    def _introduce(self, adapter: RLAdapter) -> None:
        """Tell an adapter the model; what it was given it keeps."""
        adapter.bind(
            self._client,
            tokenizer=self.tokenizer,
            base_model=self.model_name,
            lora_rank=self.lora_rank,
            renderer_name=self.renderer_name,
        )

    def _renderer(self) -> Any:
        tokenizer = (
            self.tokenizer
        )  # first: its chat template may tell which renderer is recommended
        name = self.renderer_name or get_recommended_renderer_name(self.model_name)
        return get_renderer(name, tokenizer, model_name=self.model_name)


def check_source(adapter: Any) -> None:
    """Raises ConfigurationError for what can be no adapter and make none."""
    if isinstance(adapter, RLAdapter):
        return
    if not callable(adapter) or not (_can_be_given(adapter, None) or _can_be_given(adapter)):
        raise ConfigurationError(
            f"adapter={adapter!r:.100}: give {AN_ADAPTER}, or a class or function that makes one for "
            "each group, of the tokenizer or of nothing."
        )


def _can_be_given(make: Callable[..., Any], *arguments: Any) -> bool:
    try:
        inspect.signature(make).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # no signature: its call will tell
        return True
    return True


def _name(make: Callable[..., RLAdapter]) -> str:
    return getattr(make, "__qualname__", repr(make))
