"""run_grpo: from an adapter to trained weights in one call."""

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.architecture.test_light import run as run_alone
from tests.recipe.fake_service import FakeService
from tests.recipe.test_surface import WITHOUT_TORCH
from tests.rl_core.world import (
    END,
    MODEL,
    Promises,
    Repeats,
    Sayings,
    SaysYes,
    StartsLoops,
    advantages,
    config,
    prompts_of,
    rows,
    saying,
    service,
    summaries,
)

from mint import ModelInput
from mint.recipe.exceptions import ConfigurationError, DataFormatError
from mint.recipe.rl.diagnosis import examine_run
from mint.rl_core import RLAdapter, RLConfig, run_grpo, run_grpo_async

SAVED = "tinker://fake-1:train:0/sampler_weights/final"


# ------------------------------------------------------------- the two shapes


def test_tokens_it_says_how_it_goes_and_returns_what_it_saved(tmp_path: Path, capsys: Any):
    fake = service("yes", "no", "no", "no")

    path = run_grpo(
        SaysYes(), config(tmp_path, steps=2, group=4), prompts=["sure?"], service_client=fake
    )

    assert capsys.readouterr().out.splitlines() == [
        f"Model: {MODEL}, Vocab: unknown",
        "Step 1: accuracy=25.0%, datums=4",
        "Step 2: accuracy=25.0%, datums=4",
        f"Saved: {SAVED}",
    ]
    assert path == SAVED
    assert path in fake.checkpoints
    assert advantages(fake) == [[0.75, -0.25, -0.25, -0.25]] * 2
    assert prompts_of(fake)[0] == "User: sure?\n\nAssistant:"


class Large(Repeats):
    def build_dataset(self) -> Any:
        self.asked += 1
        return (f"{self.asked}{place}" for place in range(100))


def test_samples_are_built_for_each_step_and_the_first_of_them_used(tmp_path: Path, capsys: Any):
    adapter, fake = Large(), saying(Sayings({"": ["no"], "10": ["10", "no"], "21": ["21", "no"]}))

    run_grpo(adapter, config(tmp_path, steps=2, batch=3), service_client=fake)

    assert adapter.asked == 2
    assert sorted(prompts_of(fake)) == [
        f"say {step}{place}:" for step in (1, 2) for place in (0, 1, 2)
    ]
    assert capsys.readouterr().out.splitlines()[1:3] == [
        "Step 1: accuracy=16.7%, datums=2", "Step 2: accuracy=16.7%, datums=2",
    ]  # fmt: skip
    assert advantages(fake) == [[0.5, -0.5]] * 2
    [first, *_] = fake.called("sample")
    assert first.arguments["sampling_params"].stop == [END]


def test_the_config_reaches_the_service(tmp_path: Path):
    fake = service()
    cfg = config(tmp_path, rank=4, lr=3e-4, max_tokens=5, temperature=0.7)

    run_grpo(SaysYes(), cfg, prompts=["sure?"], service_client=fake)

    [made] = fake.called("create_lora_training_client")
    assert (made.arguments["base_model"], made.arguments["rank"]) == (MODEL, 4)
    [asked] = fake.called("sample")
    params = asked.arguments["sampling_params"]
    assert (params.max_tokens, params.temperature) == (5, 0.7)
    [trained] = fake.called("forward_backward")
    assert trained.arguments["loss_fn"] == "importance_sampling"
    [stepped] = fake.called("optim_step")
    assert stepped.arguments["adam_params"].learning_rate == 3e-4


def test_the_adapter_knows_the_model_of_its_run(tmp_path: Path):
    adapter = Repeats()

    run_grpo(adapter, config(tmp_path, rank=4), service_client=service())

    info = adapter.get_model_info()
    assert (info.model_name, info.lora_rank) == (MODEL, 4)


def test_prompts_are_taken_in_order_and_begin_again(tmp_path: Path):
    fake = service()

    run_grpo(
        SaysYes(), config(tmp_path, steps=3, batch=2), prompts=["a", "b", "c"], service_client=fake
    )

    asked = [prompt[6] for prompt in prompts_of(fake)]
    assert [set(asked[at : at + 2]) for at in (0, 2, 4)] == [{"a", "b"}, {"c", "a"}, {"b", "c"}]


def test_fewer_prompts_than_a_batch_are_asked_once_each(tmp_path: Path):
    fake = service()

    run_grpo(SaysYes(), config(tmp_path, batch=8), prompts=["a", [1, 2]], service_client=fake)

    assert len(prompts_of(fake)) == 2
    assert "\x01\x02" in prompts_of(fake)


def test_equal_rewards_teach_nothing_and_a_step_of_them_trains_nothing(tmp_path: Path, capsys: Any):
    fake = service("no")

    run_grpo(SaysYes(), config(tmp_path, steps=2), prompts=["sure?"], service_client=fake)

    out, err = capsys.readouterr()
    assert "Step 1: accuracy=0.0%, datums=0" in out
    assert not fake.called("forward_backward")
    assert "every episode got the reward 0" in err


def test_the_adapter_may_say_it_in_its_own_words_and_may_await_something(
    tmp_path: Path, capsys: Any
):
    class Talks(SaysYes):
        async def evaluate(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, step: int, rewards: Sequence[float], num_datums: int
        ) -> None:
            await asyncio.sleep(0)
            print(f"{step}: {rewards} {num_datums}")

    run_grpo(Talks(), config(tmp_path), prompts=["sure?"], service_client=service())

    assert "1: [1.0, 0.0] 2" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("adapter", [StartsLoops(), Promises()], ids=lambda one: type(one).__name__)
def test_plain_methods_may_start_a_loop_and_a_data_set_may_be_promised(
    adapter: RLAdapter, tmp_path: Path
):
    fake = service()

    run_grpo(adapter, config(tmp_path), service_client=fake)

    assert advantages(fake) == [[0.5, -0.5]]


# ------------------------------------------------------------ where it is called


def test_it_runs_inside_a_running_loop_as_in_a_notebook(tmp_path: Path, capsys: Any):
    async def cell() -> str:
        return run_grpo(SaysYes(), config(tmp_path), prompts=["sure?"], service_client=service())

    assert asyncio.run(cell()) == SAVED
    assert capsys.readouterr().out.splitlines()[-1] == f"Saved: {SAVED}"


def test_a_coroutine_awaits_it(tmp_path: Path):
    async def program() -> str:
        return await run_grpo_async(
            SaysYes(), config(tmp_path), prompts=["sure?"], service_client=service()
        )

    assert asyncio.run(program()) == SAVED


def test_the_same_adapter_runs_twice(tmp_path: Path):
    adapter = SaysYes()

    for part in ("one", "two"):
        fake = service()
        run_grpo(adapter, config(tmp_path / part), prompts=["sure?"], service_client=fake)
        assert advantages(fake) == [[0.5, -0.5]]


WITHOUT_HEAVY_PACKAGES = """
import sys
sys.path.insert(0, ".")
from tests.rl_core.world import MODEL, TOKENIZER, SaysYes, service
from mint.recipe.tokenizers import register_tokenizer
from mint.rl_core import RLConfig, run_grpo
register_tokenizer(MODEL, lambda: TOKENIZER)
cfg = RLConfig(model=MODEL, steps=1, batch=1, group=2, log_path=sys.argv[1])
run_grpo(SaysYes(), cfg, prompts=["sure?"], service_client=service())
print(*[name for name in ("torch", "transformers", "datasets") if name in sys.modules])
"""


def test_it_trains_where_torch_and_transformers_are_absent(tmp_path: Path):
    said = run_alone(WITHOUT_TORCH + WITHOUT_HEAVY_PACKAGES, str(tmp_path)).splitlines()

    assert said[-1] == f"Saved: {SAVED}"  # and nothing was loaded


# ------------------------------------------------------------------- its folder


def test_it_leaves_a_run_folder_with_metrics_and_what_was_said(tmp_path: Path):
    run_grpo(SaysYes(), config(tmp_path), prompts=["sure?"], service_client=service())

    [row] = rows(tmp_path)
    assert (row["env/all/reward/total"], row["env/all/length"]) == (0.5, 15.5)
    assert [one["steps"][0]["logs"]["said"] for one in summaries(tmp_path)] == [
        "yes<|endoftext|>", "no<|endoftext|>",
    ]  # fmt: skip
    assert examine_run(tmp_path).is_healthy


def test_without_a_folder_of_its_own_it_makes_one_below_that_of_all_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MINT_RUNS_DIR", str(tmp_path))
    cfg = RLConfig(model=MODEL, steps=1, batch=1, group=2)

    run_grpo(SaysYes(), cfg, prompts=["sure?"], service_client=service())

    [folder] = os.listdir(tmp_path)
    assert rows(tmp_path / folder)


def test_a_folder_is_gone_on_with_and_one_that_is_complete_says_so(tmp_path: Path, capsys: Any):
    fake = service()

    def train(steps: int) -> str:
        cfg = config(tmp_path, steps=steps)
        return run_grpo(SaysYes(), cfg, prompts=["sure?"], service_client=fake)

    train(1)
    second = train(2)
    capsys.readouterr()
    third = train(2)

    assert [row["step"] for row in rows(tmp_path)] == [0, 1]
    out, err = capsys.readouterr()
    assert out == f"Saved: {second}\n"
    assert third == second
    assert "has all of its 2 steps already, so nothing was trained" in err


class Interrupts(SaysYes):
    """Is interrupted after one step, once."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def evaluate(self, step: int, rewards: Sequence[float], num_datums: int) -> None:
        super().evaluate(step, rewards, num_datums)
        if step == self.after:
            self.after = 0
            signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("after", "first", "says"),
    [(6, 5, "goes on after step 5"), (3, 0, "begins anew: nothing was saved yet")],
)
def test_an_interrupted_run_says_where_it_goes_on_and_does(
    after: int, first: int, says: str, tmp_path: Path
):
    fake, adapter = service(), Interrupts(after)

    def train() -> str:
        cfg = config(tmp_path, steps=8)
        return run_grpo(adapter, cfg, prompts=["sure?"], service_client=fake)

    with pytest.raises(KeyboardInterrupt) as interrupted:
        train()
    [note] = interrupted.value.__notes__
    assert str(tmp_path) in note
    assert says in note
    trained = len(fake.called("forward_backward"))
    train()

    assert len(fake.called("forward_backward")) - trained == 8 - first
    assert [row["step"] for row in rows(tmp_path)] == list(range(8))


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_run_without_a_folder_of_its_own_is_told_of_log_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MINT_RUNS_DIR", str(tmp_path))
    cfg = RLConfig(model=MODEL, steps=2, batch=1, group=2)

    with pytest.raises(KeyboardInterrupt) as interrupted:
        run_grpo(Interrupts(1), cfg, prompts=["sure?"], service_client=service())

    assert "log_path" in interrupted.value.__notes__[0]


# ---------------------------------------------------------------- what does not fit


def test_a_model_that_the_server_has_not_is_refused_with_those_that_it_has(tmp_path: Path):
    with pytest.raises(ConfigurationError) as refused:
        run_grpo(
            SaysYes(), config(tmp_path, model="no/such"), prompts=["a"], service_client=service()
        )

    assert str(refused.value) == (
        "this server has not the model no/such. It offers test/rl-core: give "
        'RLConfig(model="test/rl-core"), or MINT_BASE_MODEL.'
    )


def two_arguments(prompt: Any, response: Any) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("adapter", "cfg", "prompts", "says"),
    [
        (SaysYes, None, ["a"], r"run_grpo takes one of it: SaysYes\(\)"),
        (two_arguments, None, ["a"], r"takes an object of a subclass of RLAdapter"),
        (SaysYes(), None, None, r"SaysYes scores tokens, so run_grpo has to be told what to ask"),
        (Repeats(), None, ["a"], r"Repeats makes its prompts itself.*leave prompts out"),
        (SaysYes(), ["a"], None, r"cfg is list \['a'\].*prompts=\[...\]"),
        (SaysYes(), ["a"], ["a"], r"cfg is list \['a'\].*prompts=\[...\]"),
    ],
)
def test_what_does_not_fit_together_is_refused_before_anything_is_sent(
    adapter: Any, cfg: Any, prompts: Any, says: str
):
    fake = service()

    with pytest.raises(ConfigurationError, match=says):
        run_grpo(adapter, cfg, prompts=prompts, service_client=fake)

    assert fake.calls == []


def test_prompts_are_looked_at_before_anything_is_sent():
    fake = service()

    with pytest.raises(DataFormatError, match=r"prompts\[1\]"):
        run_grpo(SaysYes(), RLConfig(model=MODEL), prompts=["a", 3], service_client=fake)

    assert fake.calls == []


@pytest.mark.parametrize(
    ("samples", "says"),
    [([], "build_dataset gave no samples"), (None, "build_dataset gave NoneType None"),
     (3, "build_dataset gave int 3")],
)  # fmt: skip
def test_a_data_set_without_samples_is_refused(samples: Any, says: str, tmp_path: Path):
    class Builds(Repeats):
        def build_dataset(self) -> Any:
            return samples

    with pytest.raises(DataFormatError, match=rf"Builds\.{says}"):
        run_grpo(Builds(), config(tmp_path), service_client=service())


class Broken(RLAdapter):
    def __init__(self, tokenizer: Any = None) -> None:
        """Forgets the library's own."""
        self.note = "mine"

    def __call__(self, prompt: ModelInput, response: ModelInput) -> float:
        return float(self.response_text(response).startswith("yes"))


def test_an_adapter_that_forgets_the_librarys_init_trains_all_the_same(tmp_path: Path):
    fake: FakeService = service()

    run_grpo(Broken(), config(tmp_path), prompts=["sure?"], service_client=fake)

    assert advantages(fake) == [[0.5, -0.5]]
