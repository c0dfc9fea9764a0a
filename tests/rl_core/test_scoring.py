"""Scoring that is slow, failing or hostile: in time, within bounds, and nobody else's trouble."""

import asyncio
import contextvars
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from tests.recipe.tokens import ByteTokenizer

from mint import ModelInput
from mint.rl_core import FailedReward, Reward, RLAdapter, ScoringContext
from mint.rl_core.places import Places
from mint.rl_core.scoring import places_of, score_group
from mint.rl_core.threads import THREADS

PROMPT = ModelInput.from_ints([1])
LONG_S = 120.0
"""For what is sure to come; no test waits for it."""


def pairs(*responses: int) -> list[tuple[ModelInput, ModelInput]]:
    return [(PROMPT, ModelInput.from_ints([one])) for one in responses]


class Hanging(RLAdapter):
    """Hangs on response 0 until it is let go, and scores any other as itself."""

    timeout_s = 0.2

    def __init__(self) -> None:
        self.free = threading.Event()

    def __call__(self, prompt: ModelInput, response: ModelInput) -> Reward:
        (token,) = response.to_ints()
        if token == 0:
            self.free.wait(LONG_S)
        return Reward(token)


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    env = Hanging()
    yield env
    env.free.set()


def set_to(env: RLAdapter, **settings: Any) -> None:
    """Change settings of one object; types know them as its class's."""
    for name, value in settings.items():
        setattr(env, name, value)


class Counter:
    """How many are within it at once, and how many that were at most."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self.inside -= 1


class Crowd(RLAdapter):
    def __init__(self) -> None:
        self.count = Counter()

    async def acall(self, prompt: ModelInput, response: ModelInput) -> Reward:
        with self.count:
            await asyncio.sleep(0.02)
        return Reward(1)


class PlainCrowd(RLAdapter):
    def __init__(self) -> None:
        self.count = Counter()

    def __call__(self, prompt: ModelInput, response: ModelInput) -> Reward:
        with self.count:
            threading.Event().wait(0.02)
        return Reward(1)


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - it becomes so in another thread
        await asyncio.sleep(0.01)


async def cancelled(scoring: "asyncio.Task[Any]") -> None:
    scoring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await scoring


async def begun(env: RLAdapter, response: int) -> "asyncio.Task[Reward]":
    """A scoring that has its place."""
    taken = places_of(env).single.taken
    scoring = asyncio.create_task(env.score([1], [response]))
    await until(lambda: places_of(env).single.taken > taken)
    return scoring


# ------------------------------------------------------------------ together


async def test_as_many_blocking_rewards_run_side_by_side_as_the_bound_allows():
    everybody = threading.Barrier(48)

    class Meets(RLAdapter):
        def __call__(self, prompt: ModelInput, response: ModelInput) -> float:
            return everybody.wait(LONG_S) >= 0  # passed only if all 48 are here

    assert await Meets().score_batch(pairs(*range(48))) == [Reward(1)] * 48


async def test_the_event_loop_goes_on_while_a_plain_call_blocks(hanging: Hanging):
    set_to(hanging, timeout_s=LONG_S)
    scoring = await begun(hanging, 0)

    assert await hanging.score([1], [5]) == Reward(5)
    assert not scoring.done()
    hanging.free.set()
    assert await scoring == Reward(0)


async def test_without_blocking_a_plain_call_stays_on_the_loops_thread():
    class Here(RLAdapter):
        blocking = False

        def __call__(self, prompt: ModelInput, response: ModelInput) -> float:
            return threading.current_thread() is threading.main_thread()

    assert await Here().score([1], [2]) == Reward(1)


@pytest.mark.parametrize("kind", [Crowd, PlainCrowd])
async def test_batches_that_overlap_share_one_bound(kind: type[Crowd | PlainCrowd]):
    env = kind()
    set_to(env, max_concurrency=3)

    await asyncio.gather(*(env.score_batch(pairs(*range(5))) for _ in range(3)))

    assert env.count.most == 3
    assert places_of(env).single.taken == 0


def test_two_loops_in_two_threads_share_one_bound():
    env = Crowd()
    set_to(env, max_concurrency=2)

    def run() -> None:
        asyncio.run(env.score_batch(pairs(*range(10))))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)

    assert env.count.most == 2
    assert places_of(env).single.taken == 0


def test_an_adapter_is_used_in_one_run_after_another():
    env = Crowd()
    set_to(env, max_concurrency=1)

    for _ in range(3):
        assert asyncio.run(env.score_batch(pairs(1, 2, 3))) == [Reward(1)] * 3


def test_a_run_that_ends_while_others_wait_leaves_its_places_to_the_next():
    env = Crowd()
    set_to(env, max_concurrency=1)

    async def leave() -> None:
        tasks = [asyncio.create_task(env.score([1], [n])) for n in range(5)]
        await until(lambda: env.count.inside == 1)
        del tasks

    asyncio.run(leave())  # it cancels what is left

    assert asyncio.run(env.score([1], [2])) == Reward(1)
    assert places_of(env).single.taken == 0


async def test_results_come_in_the_order_of_the_pairs():
    class Backwards(RLAdapter):
        async def acall(self, prompt: ModelInput, response: ModelInput) -> float:
            (token,) = response.to_ints()
            for _ in range(20 - token):
                await asyncio.sleep(0)
            return token

    assert await Backwards().score_batch(pairs(*range(20))) == [Reward(n) for n in range(20)]


async def test_a_thread_of_a_scoring_knows_its_callers_context():
    who = contextvars.ContextVar("who", default=0)
    who.set(7)

    class Env(RLAdapter):
        def __call__(self, prompt: ModelInput, response: ModelInput) -> float:
            return who.get()

    assert await Env().score([1], [2]) == Reward(7)


# ---------------------------------------------------------------- limits of time


async def test_a_reward_that_hangs_is_cut_and_its_neighbours_are_not_disturbed(hanging: Hanging):
    set_to(hanging, timeout_s=2.0)
    set_to(hanging, timeout_score=-0.5)

    one, cut, three = await hanging.score_batch(pairs(1, 0, 3))

    assert (one, three) == (Reward(1), Reward(3))
    assert cut == FailedReward(-0.5, {"error": "timeout", "timeout_s": 2.0}, kind="timeout")


async def test_a_coroutine_that_hangs_is_cancelled_and_gone():
    ended = []

    class Env(RLAdapter):
        timeout_s = 0.05

        async def acall(self, prompt: ModelInput, response: ModelInput) -> Reward:
            try:
                await asyncio.sleep(LONG_S)
            finally:
                ended.append("cancelled")
            return Reward(1)

    env = Env()
    reward = await env.score([1], [2])

    assert isinstance(reward, FailedReward)
    assert reward.kind == "timeout"
    assert ended == ["cancelled"]
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert (places_of(env).single.taken, places_of(env).single.stuck) == (0, 0)


async def test_waiting_for_a_place_takes_nothing_of_the_limit():
    class Slow(RLAdapter):
        timeout_s = 2.0
        max_concurrency = 1

        async def acall(self, prompt: ModelInput, response: ModelInput) -> float:
            await asyncio.sleep(0.25)
            return 1

    assert await Slow().score_batch(pairs(*range(10))) == [Reward(1)] * 10  # 2.5 s in all


async def test_a_time_out_of_the_rewards_own_is_an_error_and_no_time_limit():
    class Env(RLAdapter):
        timeout_s = LONG_S
        error_score = -1

        async def acall(self, prompt: ModelInput, response: ModelInput) -> Reward:
            async with asyncio.timeout(0):
                await asyncio.sleep(LONG_S)
            return Reward(1)

    reward = await Env().score([1], [2])

    assert isinstance(reward, FailedReward)
    assert reward.kind == "error"


async def test_threads_that_hang_do_not_take_the_places_of_healthy_ones(hanging: Hanging):
    set_to(hanging, max_concurrency=3)

    for _ in range(2):
        assert isinstance(await hanging.score([1], [0]), FailedReward)

    assert places_of(hanging).single.stuck == 2
    assert places_of(hanging).single.taken == 0
    set_to(hanging, timeout_s=LONG_S)
    assert await hanging.score_batch(pairs(*range(1, 10))) == [Reward(n) for n in range(1, 10)]


async def test_after_as_many_hanging_threads_as_may_run_scoring_is_refused_until_they_end(
    hanging: Hanging,
):
    set_to(hanging, max_concurrency=2)
    set_to(hanging, error_score=0.0)  # it does not cover this
    await hanging.score_batch(pairs(0, 0))

    with pytest.raises(RuntimeError, match=r"2 calls of Hanging\.__call__ .*cannot be stopped"):
        await hanging.score([1], [5])

    hanging.free.set()
    await until(lambda: places_of(hanging).single.stuck == 0)
    set_to(hanging, timeout_s=LONG_S)
    assert await hanging.score([1], [5]) == Reward(5)


async def test_a_coroutine_that_will_not_be_cancelled_is_left_behind_and_counted(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("mint.rl_core.calls.GRACE_S", 0.05)
    free = asyncio.Event()

    class Stubborn(RLAdapter):
        timeout_s = 0.05

        async def acall(self, prompt: ModelInput, response: ModelInput) -> Reward:
            while not free.is_set():
                with suppress(asyncio.CancelledError):
                    await free.wait()
            raise OSError("nobody hears this")

    env = Stubborn()
    assert isinstance(await env.score([1], [2]), FailedReward)
    assert places_of(env).single.stuck == 1

    free.set()
    await until(lambda: places_of(env).single.stuck == 0)


async def test_what_a_plain_call_promises_is_awaited_within_the_same_limit():
    class Env(RLAdapter):
        timeout_s = 0.05

        async def later(self, response: ModelInput) -> Reward:
            (token,) = response.to_ints()
            await asyncio.sleep(LONG_S if token == 0 else 0)
            return Reward(token)

        def __call__(self, prompt: ModelInput, response: ModelInput) -> Any:
            return self.later(response)

    env = Env()
    assert isinstance(await env.score([1], [0]), FailedReward)
    set_to(env, timeout_s=LONG_S)
    assert await env.score([1], [3]) == Reward(3)


async def test_a_coroutine_that_blocks_is_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("mint.recipe.rl.held_loop.LONGEST_S", -1.0)

    class Blocks(RLAdapter):
        async def acall(self, prompt: ModelInput, response: ModelInput) -> Reward:
            return Reward(1)

    await Blocks().score([1], [2])

    assert "Blocks.acall held the event loop" in caplog.text


# ----------------------------------------------------------------- cancellation


async def test_a_cancelled_scoring_leaves_no_task_behind():
    has_begun = asyncio.Event()

    class Env(RLAdapter):
        async def acall(self, prompt: ModelInput, response: ModelInput) -> Reward:
            has_begun.set()
            await asyncio.sleep(LONG_S)
            return Reward(1)

    env = Env()
    scoring = asyncio.create_task(env.score_batch(pairs(1, 2, 3)))
    await has_begun.wait()
    await cancelled(scoring)

    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert places_of(env).single.taken == 0


async def test_a_thread_whose_scoring_was_cancelled_keeps_its_place_until_it_ends(hanging: Hanging):
    set_to(hanging, timeout_s=None, max_concurrency=1)
    scoring = await begun(hanging, 0)
    await cancelled(scoring)
    following = asyncio.create_task(hanging.score([1], [4]))
    await asyncio.sleep(0.05)

    assert not following.done()
    assert places_of(hanging).single.taken == 1
    hanging.free.set()
    assert await following == Reward(4)


async def test_a_cancelled_thread_that_hangs_gives_its_place_up_after_its_limit(hanging: Hanging):
    set_to(hanging, timeout_s=1.5, max_concurrency=2)
    scoring = await begun(hanging, 0)
    await cancelled(scoring)

    await until(lambda: places_of(hanging).single.stuck == 1)
    assert places_of(hanging).single.taken == 0


async def test_who_stops_waiting_for_a_place_leaves_the_line(hanging: Hanging):
    set_to(hanging, timeout_s=LONG_S, max_concurrency=1)
    first = await begun(hanging, 0)
    second, third = (asyncio.create_task(hanging.score([1], [n])) for n in (2, 3))
    await asyncio.sleep(0)
    second.cancel()
    hanging.free.set()

    assert await third == Reward(3)
    assert await first == Reward(0)
    assert second.cancelled()
    assert places_of(hanging).single.taken == 0


async def test_who_is_cancelled_in_the_moment_of_getting_a_place_gives_it_on():
    places = Places()
    first = await places.take(1)
    second, third = (asyncio.create_task(places.take(1)) for _ in range(2))
    await asyncio.sleep(0)
    first.end()
    second.cancel()

    (await third).end()
    assert second.cancelled()
    assert places.taken == 0


# ------------------------------------------------------------------------ errors


class Failing(RLAdapter):
    """Raises on response 0."""

    def __call__(self, prompt: ModelInput, response: ModelInput) -> Reward:
        (token,) = response.to_ints()
        if token == 0:
            raise KeyError("no such answer")
        return Reward(token)


async def test_an_error_is_raised_with_a_note_on_where_it_comes_from():
    env = Failing(ByteTokenizer())

    with pytest.raises(KeyError) as raised:
        await env.score([1], [0])

    (note,) = raised.value.__notes__
    assert "In Failing.__call__ of the adapter 'failing', on the response: [U+0000]" in note


@pytest.mark.parametrize("tokenizer", [None, ByteTokenizer()])
async def test_a_response_that_cannot_be_decoded_is_no_second_error(tokenizer: Any):
    class Env(RLAdapter):
        async def acall(self, prompt: ModelInput, response: ModelInput) -> Reward:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as raised:
        await Env(tokenizer).score([1], [99_999] * 1000)

    (note,) = raised.value.__notes__
    assert len(note) < 400


class TakesTokensForText(RLAdapter):
    def __call__(self, prompt: Any, response: Any) -> float:
        return float(response.strip() == "hi")


async def test_who_takes_tokens_for_text_is_told_how_to_get_the_text():
    with pytest.raises(AttributeError, match="strip") as raised:
        await TakesTokensForText(ByteTokenizer()).score([1], [104, 105])

    (note,) = raised.value.__notes__
    assert "self.response_text(response)" in note


async def test_an_error_that_takes_no_note_is_raised_all_the_same():
    class Closed(Exception):
        def add_note(self, note: str) -> None:
            raise OSError(note)

    class Env(RLAdapter):
        async def acall(self, prompt: ModelInput, response: ModelInput) -> Reward:
            raise Closed("x")

    with pytest.raises(Closed):
        await Env().score([1], [2])


async def test_an_error_that_cannot_be_shown_is_one_like_any_other():
    class Mute(Exception):
        def __str__(self) -> str:
            raise OSError

    class Env(RLAdapter):
        error_score = -1

        async def acall(self, prompt: ModelInput, response: ModelInput) -> Reward:
            raise Mute if response.to_ints() == [0] else ValueError("x" * 10_000)

    mute, long = await Env().score_batch(pairs(0, 1))

    assert mute.metadata == {"error": "Mute: (it cannot be shown)"}
    assert len(long.metadata["error"]) < 600


async def test_the_first_error_ends_the_others_of_its_batch():
    cancelled = []

    class Env(RLAdapter):
        async def acall(self, prompt: ModelInput, response: ModelInput) -> Reward:
            if response.to_ints() == [0]:
                raise KeyError("first")
            try:
                await asyncio.sleep(LONG_S)
            except asyncio.CancelledError:
                cancelled.append(response.to_ints()[0])
                raise
            return Reward(1)

    with pytest.raises(KeyError, match="first"):
        await Env().score_batch(pairs(1, 2, 0, 3))

    assert sorted(cancelled) == [1, 2, 3]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_with_an_error_score_a_failure_is_a_reward_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
):
    class Env(Failing):
        error_score = -1.0

    one, failed, two = await Env().score_batch(pairs(1, 0, 2))
    await Env().score([1], [0])

    assert (one, two) == (Reward(1), Reward(2))
    assert failed == FailedReward(-1.0, {"error": "KeyError: 'no such answer'"}, kind="error")
    (record,) = caplog.records  # once for the class
    assert "Env.__call__ failed and counts as error_score=-1.0" in record.getMessage()


ENDS = [
    SystemExit(3),
    StopIteration(1),
    asyncio.CancelledError(),
    KeyboardInterrupt(),
    GeneratorExit(),
]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: type(end).__name__)
async def test_nothing_that_a_plain_call_raises_ends_more_than_itself(end: BaseException):
    class Env(RLAdapter):
        def __call__(self, prompt: ModelInput, response: ModelInput) -> Reward:
            raise end

    with pytest.raises(RuntimeError, match=rf"Env\.__call__ raised {type(end).__name__}"):
        await Env().score([1], [2])


@pytest.mark.parametrize("end", ENDS[:3], ids=lambda end: type(end).__name__)
async def test_nor_does_what_a_coroutine_raises(end: BaseException):
    class Env(RLAdapter):
        async def acall(self, prompt: ModelInput, response: ModelInput) -> Reward:
            raise end

    with pytest.raises(RuntimeError, match=type(end).__name__):
        await Env().score([1], [2])

    class Kept(Env):
        error_score = 0.5

    assert (await Kept().score([1], [2])).score == 0.5


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, r"Env\.__call__ returned nothing\. Is a `return` missing"),
        ("1.0", r"Env\.__call__ returned str '1\.0'\. It has to return a Reward, or a number"),
        ((1.0, {}), r"returned a tuple of 2\. Write `return Reward\(score, metadata\)`"),
        ({"score": 1}, r"returned dict \{'score': 1\}"),
        ([1.0], r"returned list"),
        (Reward, r"returned type"),
    ],
    ids=str,
)
async def test_what_is_no_reward_is_refused_with_what_to_return(answer: Any, said: str):
    class Env(RLAdapter):
        def __call__(self, prompt: ModelInput, response: ModelInput) -> Any:
            return answer

    with pytest.raises(TypeError, match=said):
        await Env().score([1], [2])


async def test_a_bare_number_is_a_reward_and_one_that_is_not_finite_is_none():
    class Env(RLAdapter):
        async def acall(self, prompt: ModelInput, response: ModelInput) -> Any:
            return [True, 0.5, float("nan")][response.to_ints()[0]]

    assert await Env().score_batch(pairs(0, 1)) == [Reward(1), Reward(0.5)]
    with pytest.raises(ValueError, match="score=nan is not finite"):
        await Env().score([1], [2])


async def test_a_kind_of_reward_of_ones_own_stays_what_it_is():
    class Graded(Reward):
        def __init__(self, grade: str) -> None:
            super().__init__(1.0, {"grade": grade})

    class Env(RLAdapter):
        async def acall(self, prompt: ModelInput, response: ModelInput) -> Reward:
            return Graded("A")

    reward = await Env(seed=1).score([1], [2])

    assert isinstance(reward, Graded)
    assert reward.metadata == {"seed": 1, "grade": "A"}


# --------------------------------------------------------------- many at once


class Model(RLAdapter):
    """A reward model: the whole group in one call."""

    def __init__(self) -> None:
        self.calls = 0

    def score_batch(self, pairs: Any) -> Any:
        self.calls += 1
        return [response.to_ints()[0] for _, response in pairs]


def without(count: int) -> list[ScoringContext]:
    return [ScoringContext()] * count


async def test_a_group_is_scored_by_one_call_of_a_score_batch_of_ones_own():
    env = Model()

    assert await score_group(env, pairs(1, 2, 3), without(3)) == [Reward(1), Reward(2), Reward(3)]
    assert env.calls == 1
    assert await score_group(env, [], []) == []
    assert env.calls == 1


async def test_a_score_batch_that_takes_contexts_gets_them():
    class Env(Model):
        async def score_batch(self, pairs: Any, contexts: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            return [context.stop_reason == "length" for context in contexts]

    given = [ScoringContext("stop"), ScoringContext("length")]
    assert await score_group(Env(), pairs(1, 2), given) == [Reward(0), Reward(1)]


async def test_contexts_reach_each_member_of_a_group():
    class Env(RLAdapter):
        async def acall(self, prompt: Any, response: Any, context: Any = None) -> float:
            return context.stop_reason == "length"

    given = [ScoringContext("stop"), ScoringContext("length")]
    assert await score_group(Env(), pairs(1, 2), given) == [Reward(0), Reward(1)]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([1.0], r"score_batch returned 1 rewards for 2 pairs"),
        (1.0, r"score_batch returned float 1\.0\. It has to return a list"),
        ("ab", r"score_batch returned str"),
        ([1.0, None], r"score_batch returned nothing"),
    ],
    ids=str,
)
async def test_a_batch_of_something_else_is_refused(answer: Any, said: str):
    class Env(Model):
        async def score_batch(self, pairs: Any) -> Any:
            return answer

    with pytest.raises((TypeError, ValueError), match=said):
        await score_group(Env(), pairs(1, 2), without(2))


async def test_a_batch_that_fails_or_hangs_fails_as_a_whole():
    class Env(Model):
        timeout_s = 0.1
        error_score = -1.0

        async def score_batch(self, pairs: Any) -> Any:
            if len(pairs) == 2:
                raise OSError("down")
            await asyncio.sleep(LONG_S)

    failed = await score_group(Env(), pairs(1, 2), without(2))
    cut = await score_group(Env(), pairs(1, 2, 3), without(3))

    assert failed == [FailedReward(-1.0, {"error": "OSError: down"}, kind="error")] * 2
    assert [(one.score, type(one)) for one in cut] == [(0.0, FailedReward)] * 3


async def test_a_score_batch_may_score_one_by_one_within_a_bound_of_one():
    class Once(RLAdapter):
        max_concurrency = 1

        async def acall(self, prompt: ModelInput, response: ModelInput) -> float:
            return response.to_ints()[0]

        async def score_batch(self, pairs: Any) -> Any:
            return [await self.score(*pair) for pair in pairs]

    env = Once()
    assert (
        await asyncio.gather(*(score_group(env, pairs(1, 2), without(2)) for _ in range(3)))
        == [[Reward(1), Reward(2)]] * 3
    )


# --------------------------------------------------------- the interpreter's end

HANGS = """
import asyncio, threading
from mint.rl_core import RLAdapter
class Env(RLAdapter):
    timeout_s = {timeout_s}
    def __call__(self, prompt, response):
        print("begun", flush=True)
        threading.Event().wait()
print(asyncio.run(Env().score([1], [2])).kind, flush=True)
"""


def test_a_hung_reward_does_not_keep_the_interpreter_from_ending():
    ran = subprocess.run(
        [sys.executable, "-c", HANGS.format(timeout_s=0.1)],
        capture_output=True,
        text=True,
        timeout=200,
    )

    assert (ran.returncode, ran.stdout) == (0, "begun\ntimeout\n"), ran.stderr


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_a_program_whose_reward_hangs():
    program = subprocess.Popen(
        [sys.executable, "-c", HANGS.format(timeout_s=None)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stdout is not None
    assert program.stdout.readline() == "begun\n"
    program.send_signal(signal.SIGINT)
    _, said = program.communicate(timeout=200)

    assert program.returncode == -signal.SIGINT or program.returncode == 130
    assert "KeyboardInterrupt" in said


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_scores_with_threads_and_places_of_its_own(hanging: Hanging):
    asyncio.run(hanging.score([1], [0]))  # a thread that hangs
    set_to(hanging, timeout_s=LONG_S, max_concurrency=1)
    other = Hanging()
    set_to(other, timeout_s=LONG_S)
    asyncio.run(other.score([1], [3]))
    asyncio.run(until(lambda: bool(THREADS._idle)))  # and one that waits for its next call

    child = os.fork()
    if child == 0:
        os._exit(int(asyncio.run(hanging.score([1], [9])).score))

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_nothing_is_logged_as_lost(caplog: pytest.LogCaptureFixture):
    """asyncio tells of tasks that failed unheard, and of those that were destroyed while running."""
    env = Failing()
    with caplog.at_level(logging.DEBUG, logger="asyncio"):
        for _ in range(3):
            with pytest.raises(KeyError):
                asyncio.run(env.score_batch(pairs(0, 0, 1)))

    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []
