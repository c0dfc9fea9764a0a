"""ProblemEnv: one question, and the reward's two parts."""

from typing import Any

import pytest
from tests.recipe.rl.players import END, RENDERER, TOKENIZER, run, said, shown

from mint.recipe.messages import Message
from mint.recipe.rl.problem_env import ProblemEnv, ProblemGroupBuilder
from mint.recipe.rl.types import StepResult


class TwoPlusTwo(ProblemEnv):
    def get_question(self) -> str:
        return "2+2?"

    def check_answer(self, text: str) -> bool:
        return "4" in text

    def check_format(self, text: str) -> bool:
        return text.endswith(".")

    def get_reference_answer(self) -> str:
        return "4."


def answered(action: list[int], **settings: Any) -> StepResult:
    return run(TwoPlusTwo(RENDERER, **settings).step(action))


@pytest.mark.parametrize(
    ("action", "reward", "form", "correct"),
    [
        (said("4."), 1.0, 1.0, 1.0),
        (said("4"), 0.9, 0.0, 1.0),
        (said("5."), 0.0, 1.0, 0.0),
        (said("5"), -0.1, 0.0, 0.0),
        (TOKENIZER.encode("4."), 0.9, 0.0, 1.0),  # right, and it never ended
    ],
)
def test_bad_form_costs_its_coefficient_and_a_right_answer_is_worth_1(
    action: list[int], reward: float, form: float, correct: float
):
    result = answered(action)

    assert result.reward == pytest.approx(reward)
    assert result.metrics == {"format": form, "correct": correct}
    assert result.episode_done
    assert result.next_observation.length == 0


def test_bad_form_costs_what_is_said():
    assert answered(said("4"), format_coef=0.5).reward == 0.5


def test_an_answer_that_ends_without_the_stop_sequence_has_bad_form_unless_that_is_allowed():
    class EndsByEos(type(RENDERER)):
        def parse_response(self, response: list[int]) -> tuple[Message, Any]:
            message, _ = super().parse_response(response)
            return message, "eos"

    def form(**settings: Any) -> float:
        env = TwoPlusTwo(EndsByEos(TOKENIZER), **settings)
        return run(env.step(said("4."))).metrics["format"]

    assert form() == 0.0
    assert form(require_stop_sequence_for_format=False) == 1.0


def test_an_answer_that_never_ends_has_bad_form_even_then():
    result = answered(TOKENIZER.encode("4."), require_stop_sequence_for_format=False)

    assert result.metrics["format"] == 0.0


def test_the_question_comes_after_the_prefix():
    prefix: list[Message] = [{"role": "system", "content": "count"}]
    prompt, stop = run(TwoPlusTwo(RENDERER, prefix).initial_observation())

    assert shown(prompt) == (
        "<|im_start|>system\ncount<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert stop == [END]


def test_a_transcript_can_show_answer_and_reference():
    assert answered(said("5")).logs == {"answer": "5", "reference_answer": "4."}


def test_a_group_is_so_many_fresh_envs_under_its_data_sets_name():
    builder = ProblemGroupBuilder(lambda: TwoPlusTwo(RENDERER), 3, "sums")
    envs = run(builder.make_envs())

    assert len(set(map(id, envs))) == 3
    assert builder.logging_tags() == ["sums"]
    assert ProblemGroupBuilder(lambda: TwoPlusTwo(RENDERER), 1).logging_tags() == ["problems"]
