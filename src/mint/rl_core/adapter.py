"""RLAdapter: a reward is one class."""

import asyncio
import hashlib
import inspect
import operator
import random
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from mint import ModelInput
from mint.recipe.tasks import has_running_loop, run_together
from mint.rl_core import model_info as models
from mint.rl_core.context import NO_CONTEXT, ScoringContext
from mint.rl_core.limits import Limits, warn_of_near_names
from mint.rl_core.model_info import ModelInfo
from mint.rl_core.reward import Reward
from mint.rl_core.scoring import score_one
from mint.rl_core.shapes import (
    BatchShape,
    Shape,
    check_settings,
    read_batch_shape,
    read_shape,
    shape_of,
    with_model_inputs,
)
from mint.rl_core.tokens import Tokens, as_model_input, identity, text_of


class _Bound(NamedTuple):
    """What an adapter has from the run that it was last told of."""

    tokenizer: Any = None
    info: ModelInfo | None = None
    given: ModelInfo = ModelInfo()
    """What it knew before."""


class RLAdapter:
    """Scores what a model says. Subclass it, and write one of:

        def __call__(self, prompt, response) -> Reward           runs in a thread
        async def acall(self, prompt, response) -> Reward        where it awaits something
        def score_batch(self, pairs) -> list[Reward]             many with one call

    `prompt` is exactly what was sent, `response` exactly what was sampled, its stop token included. A
    third parameter, `context`, is given a ScoringContext. Two scorings may run at once, in two threads,
    on one adapter.

    The sample-based shape has `build_dataset`, `make_prompt` and `compute_reward` in place of these.

    A base class of other adapters has no scoring of its own: `class Base(RLAdapter, abstract=True)`.
    """

    name: ClassVar[str] = "adapter"
    """The tag of its metrics; for a subclass that has none its class name in snake case."""
    timeout_s: float | None = None
    """Of one scoring call, once it has begun; None for no limit. A thread cannot be stopped: it is
    left to end by itself, and scoring is refused once `max_concurrency` of them hang."""
    timeout_score: float = 0.0
    """What a scoring that was cut is worth."""
    error_score: float | None = None
    """What a scoring that raised is worth; None: the exception is raised, which ends the run."""
    max_concurrency: int = 64
    """Scorings at once, over all that use this object."""
    blocking: bool = True
    """A scoring method that is no `async def` runs in a thread. False: on the event loop, for one that
    takes no time, or has to stay in one thread. There it cannot be cut, and whatever else runs stands
    still meanwhile."""

    # Without values here: a dataclass would take them for defaults of its own fields.
    tokenizer: Any
    model_info: ModelInfo | None
    seed: int | None

    _mint_shape: ClassVar[Shape] = Shape("abstract")
    _mint_batch_shape: ClassVar[BatchShape | None] = None
    _mint_is_named: ClassVar[bool] = False

    def __init__(
        self,
        tokenizer: Any = None,
        *,
        model_info: ModelInfo | None = None,
        seed: int | None = None,
    ) -> None:
        """
        Args:
            tokenizer: such as training_client.get_tokenizer(). A run gives one to an adapter that has
                none.
            model_info: what is known of the model; a run fills in the rest.
            seed: of `rng`; noted in each reward's metadata.
        """
        self.tokenizer = tokenizer
        self.model_info = model_info
        self.seed = None if seed is None else operator.index(seed)

    def __init_subclass__(cls, *, abstract: bool = False, **named: Any) -> None:
        super().__init_subclass__(**named)
        cls._settle_name()
        cls._mint_shape = read_shape(cls, RLAdapter, abstract)
        cls._mint_batch_shape = read_batch_shape(cls, RLAdapter)
        check_settings(cls, Limits.of(cls))
        warn_of_near_names(cls, RLAdapter)
        for method in ("__call__", "acall"):
            if inspect.isfunction(own := vars(cls).get(method)):
                setattr(cls, method, with_model_inputs(own))

    @classmethod
    def _settle_name(cls) -> None:
        if vars(cls).get("name") is not None:
            cls._mint_is_named = True
        elif "name" in vars(cls) or not cls._mint_is_named:
            cls.name = _snake_case(cls.__name__)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """None for what an __init__ of one's own has not set."""
            if name in ("tokenizer", "model_info", "seed"):
                return None
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # ------------------------------------------------------- yours to write

    def __call__(
        self, prompt: ModelInput, response: ModelInput, /, *more: Any, **named: Any
    ) -> Any:
        """The reward of one response. This one, for classes that have another way to score, runs that
        to its end where no event loop runs.

        Raises:
            RuntimeError: an event loop runs here: `await adapter.score(prompt, response)`.
        """
        self._refuse_samples()
        if shape_of(self).kind == "__call__":
            raise TypeError(f"super().__call__ of {type(self).__name__} leads to no scoring.")
        if not has_running_loop():
            return asyncio.run(self.score(prompt, response))
        raise RuntimeError(
            f"{type(self).__name__} scores in {shape_of(self).kind}, and an event loop is running here: "
            "write `await env.score(prompt, response)`."
        )

    async def acall(
        self, prompt: ModelInput, response: ModelInput, /, *more: Any, **named: Any
    ) -> Any:
        """The reward of one response, for what awaits something."""
        raise TypeError(
            f"{type(self).__name__} has no acall of its own: write `await env.score(prompt, response)`, "
            "which scores whichever way it has."
        )

    # ------------------------------------------------------- yours to write, of samples

    def build_dataset(self) -> list[Any]:
        """The samples of one step, anew for each step; the first of them are used."""
        raise NotImplementedError(
            f"{type(self).__name__} has no build_dataset(self): it returns the list of samples that a "
            "step is about."
        )

    def make_prompt(self, sample: Any, tokenizer: Any, /) -> list[int]:
        """The tokens that the model is asked with about a sample."""
        raise NotImplementedError(f"{type(self).__name__} scores tokens: it makes no prompts.")

    def compute_reward(self, response: str, sample: Any, /) -> Any:
        """The reward of a response to a sample: a number or a Reward. May be an `async def`.

        Args:
            response: the decoded text, special tokens included.
        """
        raise NotImplementedError(f"{type(self).__name__} scores tokens: it takes no samples.")

    def evaluate(self, step: int, rewards: Sequence[float], num_datums: int, /) -> None:
        """Say how a step went.

        Args:
            step: counted from 1.
            rewards: of all the step's responses.
            num_datums: how many the step trained on.
        """
        right = sum(float(reward) > 0 for reward in rewards)
        accuracy = right / len(rewards) if len(rewards) else 0.0
        print(f"Step {step}: accuracy={accuracy:.1%}, datums={num_datums}", flush=True)

    # ------------------------------------------------------------ the library's way in

    async def score(
        self, prompt: Tokens, response: Tokens, context: ScoringContext | None = None
    ) -> Reward:
        """The Reward of one response, by whichever method the class has, with its time limit and its
        rule for errors.

        The time limit begins when the scoring does: it may have waited for a place, and how long says
        nothing about it.

        Raises:
            RuntimeError: `max_concurrency` earlier ones hang and cannot be stopped.
            TypeError: the class scores samples; or its method returned no Reward and no number.
            Exception: the scoring's own, unless `error_score` is set.
        """
        self._refuse_samples()
        pair = as_model_input(prompt, "prompt"), as_model_input(response, "response")
        return await score_one(self, *pair, context or NO_CONTEXT)

    if TYPE_CHECKING:

        def score_batch(self, pairs: Any, /, *contexts: Any, **named: Any) -> Any:
            """To a type checker any override is one, whether or not it awaits or takes contexts."""
    else:

        async def score_batch(
            self,
            pairs: Sequence[tuple[Tokens, Tokens]],
            contexts: Sequence[ScoringContext] | None = None,
        ) -> list[Reward]:
            """The Rewards of several pairs of prompt and response, in their order.

            Override it to score many with one call, such as to a reward model: a run calls it with one
            group at a time. Leave `contexts` out if you do not need them; a plain `def` runs in a thread.
            Its call has the time limit of one scoring, and all of it fails together.

            Raises:
                Exception: the first scoring's that raises, unless `error_score` is set; the rest is
                    cancelled.
            """
            contexts = [NO_CONTEXT] * len(pairs) if contexts is None else contexts
            return await run_together(
                self.score(*pair, context) for pair, context in zip(pairs, contexts, strict=True)
            )

    def bind(
        self,
        training_client: Any,
        *,
        tokenizer: Any = None,
        base_model: str | None = None,
        lora_rank: int | None = None,
        renderer_name: str | None = None,
    ) -> None:
        """Tell the adapter which model it scores. What it was given when it was made stays.

        Args:
            training_client: asked for its tokenizer if the adapter has none and none is given here, and
                for nothing else.
            tokenizer: the model's, for an adapter that has none, where it is at hand already.
            renderer_name: what writes the prompts.
        """
        before = _bound(self)
        own, given = self.tokenizer, self.model_info or ModelInfo()
        if own is None or own is before.tokenizer:
            own = training_client.get_tokenizer() if tokenizer is None else tokenizer
        if given is before.info:
            given = before.given
        told = ModelInfo(base_model, renderer_name=renderer_name, lora_rank=lora_rank)
        if base_model is not None:
            told = told.completed_by(models.by_name(base_model))
        info = given.completed_by(told).completed_by(models.by_tokenizer(own))
        # Past __setattr__, which a frozen dataclass closes.
        vars(self).update(tokenizer=own, model_info=info)
        vars(self)["_mint_bound"] = _Bound(own, info, given)

    def speaks_for(self) -> tuple[type, str]:
        """The class and the method that messages about a scoring name."""
        return type(self), shape_of(self).kind

    def _refuse_samples(self) -> None:
        kind = shape_of(self).kind
        if kind == "abstract":
            raise TypeError(f"{type(self).__name__} is abstract: its subclasses score.")
        if kind == "sample-based":
            raise TypeError(
                f"{type(self).__name__} scores samples (compute_reward), so tokens alone cannot be "
                "scored: run_grpo(adapter) brings them together."
            )

    # --------------------------------------------------------------- yours to use

    def get_tokenizer(self) -> Any:
        """The model's tokenizer.

        Raises:
            RuntimeError: the adapter has none.
        """
        if self.tokenizer is None:
            raise RuntimeError(
                f"{type(self).__name__} has no tokenizer: make it with one, "
                f"{type(self).__name__}(training_client.get_tokenizer()), or set self.tokenizer in an "
                "__init__ of your own. In a run it gets one before the first scoring."
            )
        return self.tokenizer

    def get_model_info(self) -> ModelInfo:
        """What is known of the model, from whoever made the adapter, the run, and the tokenizer. Asks
        nobody over a network."""
        given, bound = self.model_info or ModelInfo(), _bound(self)
        is_complete = given is bound.info and self.tokenizer is bound.tokenizer
        if self.tokenizer is None or is_complete:
            return given
        return given.completed_by(models.by_tokenizer(self.tokenizer))

    def rng(self, prompt: Tokens, response: Tokens) -> random.Random:
        """Random numbers for one scoring: with a seed, the same for the same seed and tokens, in any
        order, thread or process. Without, other ones each time."""
        if self.seed is None:
            return random.Random()
        pair = as_model_input(prompt, "prompt"), as_model_input(response, "response")
        text = f"{self.seed!r};{identity(pair[0])};{identity(pair[1])}"
        digest = hashlib.sha256(text.encode()).digest()
        return random.Random(int.from_bytes(digest, "big"))

    def response_text(self, response: Tokens) -> str:
        """The response as text, without special tokens."""
        tokens = as_model_input(response, "response").to_ints()
        return text_of(self.get_tokenizer(), tokens)


def _bound(adapter: RLAdapter) -> _Bound:
    return vars(adapter).get("_mint_bound", _Bound())


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
