"""One training step, under any schedule: groups in, weights changed, numbers out.

Letters: `D` datums, `T` tokens.
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mint import AdamParams, Datum
from mint.recipe.rl.config import Config
from mint.recipe.rl.data_processing import split_substeps, training_logprobs, without_mask
from mint.recipe.rl.groups import Group
from mint.recipe.rl.kl import TokenUsage
from mint.recipe.rl.reference import Reference
from mint.recipe.service import submit_forward_backward, submit_optim_step
from mint.recipe.stores.timing import span
from mint.types import ForwardBackwardOutput, OptimStepResponse

BETA1, BETA2, EPSILON = 0.9, 0.95, 1e-8
"""Of Adam. A beta2 of 0.95 forgets in 20 steps: policy gradients change their size quickly."""


@dataclass(frozen=True)
class Learner:
    """What turns groups into changed weights."""

    config: Config
    training_client: Any
    loss_temperature: float | None = None
    """Sent with the loss, so that it reads the data at the temperature it was sampled at. None: 1,
    or the server cannot."""
    reference: Reference | None = None

    @property
    def loss_fn_config(self) -> dict[str, Any] | None:
        """The user's, and the temperature, which a user's own overrides."""
        given = self.config.loss_fn_config
        if self.loss_temperature is None:
            return None if given is None else dict(given)
        return {"temperature": self.loss_temperature, **(given or {})}

    @property
    def adam(self) -> AdamParams:
        return AdamParams(
            learning_rate=self.config.learning_rate, beta1=BETA1, beta2=BETA2, eps=EPSILON
        )


@dataclass
class Answers:
    """What the server said of one step's updates."""

    data_D: list[Datum] = field(default_factory=list)
    """What was trained, with its masks, in the order in which it was sent."""
    logprobs_D: list[np.ndarray] = field(default_factory=list)
    """Of the targets, under the weights before each datum's own update; `[T]` each."""
    gradients: list[Mapping[str, float]] = field(default_factory=list)
    """Metrics of each forward_backward."""
    optimizer: dict[str, float] = field(default_factory=dict)
    """Metrics of the optimizer steps; a later one's take the place of an earlier one's."""


_Gradient = tuple[Sequence[Datum], Awaitable[ForwardBackwardOutput]]


@dataclass(frozen=True)
class _Update:
    """One optimizer step and the gradients it applies."""

    gradients: list[_Gradient]
    optimizer: Awaitable[OptimStepResponse]


class Updates:
    """The requests of one step, in the order of their effect.

    An update is submitted before the answers of the one before it are awaited, so the server always
    holds the next request while it works; and no more than that, so an error stops the step early.
    """

    def __init__(self, learner: Learner) -> None:
        self.answers = Answers()
        self._learner = learner
        self._open: list[_Gradient] = []
        self._submitted: list[_Update] = []

    async def add_gradient(self, data_D: Sequence[Datum]) -> None:
        """Submit one forward_backward."""
        learner = self._learner
        answer = await submit_forward_backward(
            learner.training_client,
            [without_mask(datum) for datum in data_D],
            learner.config.update_loss_fn,
            learner.loss_fn_config,
        )
        self._open.append((data_D, answer))

    async def step_optimizer(self) -> None:
        """Submit one optimizer step over the gradients since the last, if there are any."""
        if not self._open:
            return
        learner = self._learner
        optimizer = await submit_optim_step(learner.training_client, learner.adam)
        self._submitted.append(_Update(self._open, optimizer))
        self._open = []
        await self._receive(all_but=1)

    async def finish(self) -> None:
        """Wait for every answer."""
        await self._receive(all_but=0)

    async def _receive(self, all_but: int) -> None:
        while len(self._submitted) > all_but:
            update = self._submitted.pop(0)
            for data_D, gradient in update.gradients:
                output = await gradient
                self.answers.data_D.extend(data_D)
                self.answers.logprobs_D.extend(training_logprobs([output]))
                self.answers.gradients.append(output.metrics)
            self.answers.optimizer.update((await update.optimizer).metrics or {})


class Step:
    """One training step.

    A schedule gives it groups, all at once (`train`) or some at a time (`accumulate`,
    `step_optimizer`, `finish`). A step whose groups yield no datum sends nothing.
    """

    def __init__(self, index: int, learner: Learner) -> None:
        self.index = index
        self.groups: list[Group] = []
        """All that belong to it, trained or not."""
        self.kl_metrics: list[dict[str, float]] = []
        self.scoring_usage = TokenUsage()
        """Tokens that were read for the KL."""
        self.metrics: dict[str, float] = {}
        """What a schedule adds to the row."""
        self._learner = learner
        self._updates = Updates(learner)

    @property
    def answers(self) -> Answers:
        return self._updates.answers

    @property
    def changed_weights(self) -> bool:
        return bool(self.answers.data_D)

    async def train(self, groups: Sequence[Group]) -> None:
        """Train on a whole batch: `num_substeps` optimizer steps over parts of equal count."""
        data_D = await self._prepare(groups)
        if not data_D:
            return
        with span("train"):
            for part_D in split_substeps(data_D, self._learner.config.num_substeps):
                await self._updates.add_gradient(part_D)
                await self._updates.step_optimizer()
            await self._updates.finish()

    async def accumulate(self, groups: Sequence[Group]) -> None:
        """Add the gradient of one minibatch."""
        data_D = await self._prepare(groups)
        if data_D:
            await self._updates.add_gradient(data_D)

    async def step_optimizer(self) -> None:
        """Apply what has been accumulated."""
        with span("train"):
            await self._updates.step_optimizer()

    async def finish(self) -> None:
        """Wait for the updates to be done."""
        with span("train"):
            await self._updates.finish()

    async def _prepare(self, groups: Sequence[Group]) -> list[Datum]:
        """The datums of `groups`, penalised."""
        self.groups.extend(groups)
        data_D = [datum for group in groups for datum in group.data]
        if data_D and self._learner.reference is not None:
            metrics, usage = await self._learner.reference.penalise(data_D)
            self.kl_metrics.append(metrics)
            self.scoring_usage += usage
        return data_D
