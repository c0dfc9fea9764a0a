"""Problems: one question, one answer, a reward for its being right and written as asked."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mint import ModelInput
from mint.recipe.messages import Message, get_text_content
from mint.recipe.rl.prompts import first_prompt
from mint.recipe.rl.types import (
    Action,
    ActionExtra,
    Env,
    EnvGroupBuilder,
    Observation,
    StepResult,
    StopCondition,
)

if TYPE_CHECKING:
    from mint.recipe.renderers.base import Renderer


class ProblemEnv(Env):
    """One question, one answer.

        reward = format_coef * (F - 1) + A

    F: the answer ended as it should and `check_format` holds. A: `check_answer` holds. Right and
    well-formed is 1, wrong and well-formed 0, and bad form costs `format_coef`.
    """

    def __init__(
        self,
        renderer: "Renderer",
        convo_prefix: list[Message] | None = None,
        format_coef: float = 0.1,
        require_stop_sequence_for_format: bool = True,
    ) -> None:
        """
        Args:
            convo_prefix: messages before the question, such as worked examples.
            require_stop_sequence_for_format: an answer that ends with the end of text, and not
                with the renderer's stop sequence, has bad form.
        """
        self.renderer = renderer
        self.convo_prefix = convo_prefix or []
        self.format_coef = format_coef
        self.require_stop_sequence_for_format = require_stop_sequence_for_format

    @abstractmethod
    def get_question(self) -> str:
        """What the model is asked."""

    @abstractmethod
    def check_answer(self, text: str) -> bool:
        """Whether the answer is right."""

    @abstractmethod
    def check_format(self, text: str) -> bool:
        """Whether it is written as asked."""

    @abstractmethod
    def get_reference_answer(self) -> str:
        """A right answer, for people who read transcripts."""

    async def initial_observation(self) -> tuple[Observation, StopCondition]:
        question: Message = {"role": "user", "content": self.get_question()}
        prompt = await first_prompt(self.renderer, [*self.convo_prefix, question])
        return prompt, self.renderer.get_stop_sequences()

    async def step(self, action: Action, *, extra: ActionExtra | None = None) -> StepResult:
        message, termination = self.renderer.parse_response(action)
        text = get_text_content(message)
        is_ended = bool(termination)
        if self.require_stop_sequence_for_format:
            is_ended = termination == "stop_sequence"
        has_format = float(is_ended and self.check_format(text))
        is_correct = float(self.check_answer(text))
        return StepResult(
            reward=self.format_coef * (has_format - 1) + is_correct,
            episode_done=True,
            next_observation=ModelInput.empty(),
            next_stop_condition=self.renderer.get_stop_sequences(),
            metrics={"format": has_format, "correct": is_correct},
            logs={"answer": text, "reference_answer": self.get_reference_answer()},
        )


@dataclass(frozen=True)
class ProblemGroupBuilder(EnvGroupBuilder):
    """`num_envs` attempts at one problem."""

    env_thunk: Callable[[], ProblemEnv]
    """Makes one attempt's env."""
    num_envs: int
    dataset_name: str = "problems"
    """The tag under which the group's numbers are gathered."""

    async def make_envs(self) -> Sequence[Env]:
        return [self.env_thunk() for _ in range(self.num_envs)]

    def logging_tags(self) -> list[str]:
        return [self.dataset_name]
