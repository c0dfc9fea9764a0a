"""Calculations with a tool: the questions, an episode's turns, what a program may do, and training."""

import asyncio
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from demos.rl import tool_use
from demos.rl.tool_use import EXAMPLES, FORMS, Calculation, Question
from tests.rl_core import world
from tests.rl_core.world import MODEL, TOKENIZER

from mint.recipe.rl import train
from mint.recipe.rl.message_env import MessageStepResult
from mint.recipe.sandbox import Sandbox
from mint.rl_core import RLConfig

QUESTION = Question("{c} - {a} * {b}", 80, 88, 944)
ANSWER = 944 - 80 * 88


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as one:
        yield one


async def play(sandbox: Sandbox, *said: str) -> list[MessageStepResult]:
    env = Calculation(QUESTION, sandbox)
    return [await env.step({"role": "assistant", "content": text}) for text in said]


def program(source: str) -> str:
    return f"```python\n{source}\n```"


def drawn_questions(count: int) -> list[Question]:
    draw = random.Random(7)
    return [Question.drawn(draw) for _ in range(count)]


def test_every_question_has_the_answer_of_its_own_text():
    questions = drawn_questions(200)

    assert {one.form for one in questions} == set(FORMS)
    for question in questions:
        asked = question.text.removeprefix("What is ").removesuffix("?")
        assert question.answer == eval(asked, {"__builtins__": {}}), question


async def test_every_question_rewards_its_right_answer_and_not_the_next_number(sandbox: Sandbox):
    for question in drawn_questions(50):
        right = await Calculation(question, sandbox).step(
            {"role": "assistant", "content": str(question.answer)}
        )
        wrong = await Calculation(question, sandbox).step(
            {"role": "assistant", "content": str(question.answer + 1)}
        )
        assert (right.reward, wrong.reward) == (1.0, 0.0)
        assert right.episode_done
        assert wrong.episode_done


async def test_a_program_runs_and_its_output_comes_back_as_a_message(sandbox: Sandbox):
    first, last = await play(sandbox, program("print(944 - 80 * 88)"), str(ANSWER))

    assert not first.episode_done
    assert first.next_messages[-1] == {"role": "user", "content": f"Output: {ANSWER}"}
    assert first.next_messages[: len(EXAMPLES)] == EXAMPLES
    assert (last.reward, last.episode_done, last.metrics) == (1.0, True, {"programs": 1})


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("print(1 / 0)", "ZeroDivisionError: division by zero"),
        ("x = 5", "nothing"),
        ("print('7' * 1000)", "7" * 100),
        ("print(open('/etc/shadow').read())", "Error: [Errno"),
        ("import socket; socket.create_connection(('127.0.0.1', 80), 1)", "Error"),
    ],
)
async def test_a_program_that_fails_is_told_so_and_the_episode_goes_on(
    sandbox: Sandbox, source: str, output: str
):
    [result] = await play(sandbox, program(source))

    assert output in result.next_messages[-1]["content"]
    assert not result.episode_done


async def test_who_only_writes_programs_is_graded_at_the_end(sandbox: Sandbox):
    *before, last = await play(sandbox, *[program("print(1)")] * 3)

    assert [one.episode_done for one in before] == [False, False]
    assert (last.episode_done, last.reward) == (True, 0.0)


def uses_the_tool(prompt: list[int], params: Any) -> world.Answer:
    """Computes the question with a program, and passes on what it prints; every second time wrongly."""
    *_, asked = TOKENIZER.decode(prompt).split("What is ")
    expression, _, rest = asked.partition("?")
    if "Output: " not in rest:
        said = program(f"print({expression})")
    else:
        output = rest.partition("Output: ")[2].split()[0]
        said = output if next(TURNS) % 2 else f"{output}1"
    tokens = TOKENIZER.encode(f" {said}\n\nUser:")
    return tokens, [-0.5] * len(tokens), "stop"


TURNS = itertools.count()


def test_right_answers_among_wrong_ones_are_trained_with_both_turns(
    tmp_path: Path, sandbox: Sandbox, capsys: pytest.CaptureFixture[str]
):
    fake = world.FakeService(uses_the_tool, tokenizer=TOKENIZER, base_model=MODEL)
    config = RLConfig(model=MODEL, steps=2, batch=2, group=4)
    run = train.Config(
        dataset_builder=tool_use.CalculationsBuilder(config=config, sandbox=sandbox),
        model_name=MODEL,
        learning_rate=config.lr,
        max_tokens=config.max_tokens,
        log_path=str(tmp_path),
        eval_every=0,
        service_client=fake,
    )

    asyncio.run(train.main(run, on_step=tool_use.report))

    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"Step {n}: accuracy=50.0%, datums=8" for n in (1, 2)]
    assert [row["env/all/turns_per_episode"] for row in world.rows(tmp_path)] == [2.0, 2.0]
