"""A run from config to saved weights, against a service of our own that learns nothing."""

import asyncio
import json
import logging
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import chz
import pytest
from tests.recipe.fake_service import FakeService
from tests.recipe.rl.guessing import (
    BAD,
    GOOD,
    REWARD,
    Data,
    GuessGroup,
    alternating,
    always,
    config,
    guesses,
    places,
    records,
    rows,
    run,
    trained,
    training_calls,
)

from mint import TensorData
from mint.recipe.eval.evaluators import SamplingClientEvaluator
from mint.recipe.exceptions import ConfigurationError, DataError, DataValidationError
from mint.recipe.rl.config import KLReferenceConfig
from mint.recipe.rl.rollout_strategy import RetryOnFailure
from mint.recipe.rl.rollouts import get_rollout_executor
from mint.recipe.rl.train import main

# ------------------------------------------------------------------ one run


def test_a_run_rolls_out_and_trains_every_batch_and_saves_at_the_end(tmp_path: Path):
    service = FakeService(alternating())

    run(tmp_path, service, guesses(batches=2))

    assert trained(service) == [[0, 1], [2, 3]]
    assert service.names() == [
        "create_lora_training_client",
        "save_weights_and_get_sampling_client",
        "sample", "sample",  # one request per group, for both of its members
        "forward_backward", "optim_step",
        "save_weights_and_get_sampling_client",
        "sample", "sample",
        "forward_backward", "optim_step",
        "save_state", "save_weights_for_sampler",
    ]  # fmt: skip
    [final] = records(tmp_path)
    assert (final["name"], final["batch"], final["final"]) == ("final", 2, True)
    assert service.checkpoints[final["state_path"]].steps == 2
    assert service.checkpoints[final["sampler_path"]].ttl_seconds is None


def test_each_step_samples_from_the_weights_of_the_step_before(tmp_path: Path):
    service = FakeService(alternating())

    run(tmp_path, service, guesses(batches=3, groups=1))

    assert [call.client.steps for call in service.called("sample")] == [0, 1, 2]


def test_what_is_sent_is_the_sampled_tokens_with_centred_rewards_and_no_mask(tmp_path: Path):
    service = FakeService(alternating())

    run(tmp_path, service, guesses(batches=1, groups=1))

    [call] = service.called("forward_backward")
    good, bad = call.arguments["data"]
    assert good.model_input.to_ints() == [100, GOOD]
    assert good.loss_fn_inputs["target_tokens"].tolist() == [GOOD, 0]
    assert good.loss_fn_inputs["advantages"].tolist() == [0.5, 0.5]  # rewards 1 and 0, mean 1/2
    assert bad.loss_fn_inputs["advantages"].tolist() == [-0.5, -0.5]
    assert good.loss_fn_inputs["logprobs"].tolist() == pytest.approx([-0.5, -0.1])
    assert set(good.loss_fn_inputs) == {"target_tokens", "advantages", "logprobs"}
    assert (call.arguments["loss_fn"], call.arguments["loss_fn_config"]) == (
        "importance_sampling",
        None,
    )


def test_the_optimizer_is_the_one_of_the_contract(tmp_path: Path):
    service = FakeService(alternating())

    run(tmp_path, service, guesses(batches=1), learning_rate=3e-5)

    [call] = service.called("optim_step")
    adam = call.arguments["adam_params"]
    assert (adam.learning_rate, adam.beta1, adam.beta2, adam.eps) == (3e-5, 0.9, 0.95, 1e-8)


def test_a_row_has_the_numbers_of_its_step(tmp_path: Path):
    service = FakeService(alternating(), drift=0.25)

    run(tmp_path, service, guesses(batches=2))

    first, second = rows(tmp_path)
    assert [first["step"], second["step"]] == [0, 1]
    assert [first["progress/done_frac"], second["progress/done_frac"]] == [0.5, 1.0]
    assert first[REWARD] == 0.5
    assert first["env/all/correct"] == 0.5
    assert first["optim/kl_sample_train_v1"] == pytest.approx(-0.25)  # trainer above sampler
    assert first["optim/kl_sample_train_v2"] == pytest.approx(0.5 * 0.25**2)
    assert first["optim/entropy"] == pytest.approx((0.5 + 0.1) / 2)
    assert second["optimizer_steps"] == 2  # the server's own, as it comes
    assert second["optim/loss:sum"] == pytest.approx(4 * (0.25 + (-0.15)))
    assert first["optim/skipped_step"] == 0
    assert first["tokens/sampled"] == 8
    assert first["tokens/trained"] == 8
    assert second["tokens/cumulative/sampled"] == 16
    assert first["time/train"] <= first["time/total"]


def test_the_config_is_written_down(tmp_path: Path):
    run(tmp_path, FakeService(alternating()), guesses(batches=1), max_tokens=5)

    assert json.loads((tmp_path / "config.json").read_text())["max_tokens"] == 5


def test_the_training_client_and_the_data_set_are_waited_for_at_once(tmp_path: Path):
    """Here the client is there only once the data set has been built."""
    built = threading.Event()

    def wait_for_data(call: Any) -> None:
        if call.name == "create_lora_training_client":
            assert built.wait(20)

    service = FakeService(alternating(), fail=wait_for_data)

    @chz.chz
    class Late(Data):
        async def __call__(self) -> Any:
            built.set()
            return await Data.__call__(self)

    run(tmp_path, service, [], dataset_builder=Late(batches=guesses(batches=1)))

    assert len(rows(tmp_path)) == 1


def test_a_client_is_told_what_it_trains(tmp_path: Path):
    service = FakeService(alternating())

    run(tmp_path, service, guesses(batches=1), renderer_name="qwen3", lora_rank=7)

    [call] = service.called("create_lora_training_client")
    assert (call.arguments["base_model"], call.arguments["rank"]) == ("test/tiny", 7)
    assert call.arguments["user_metadata"] == {"renderer_name": "qwen3"}


def test_a_config_without_folder_and_recipe_name_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MINT_RUNS_DIR", str(tmp_path))
    service = FakeService(alternating())
    full = config(tmp_path, service, guesses(batches=1))
    without = chz.replace(full)
    named = {
        field: getattr(without, field)
        for field in ("learning_rate", "dataset_builder", "model_name", "max_tokens")
    }

    asyncio.run(main(config=type(full)(**named, service_client=service)))

    [folder] = tmp_path.iterdir()
    assert rows(folder)[-1][REWARD] == 0.5


def test_max_steps_above_the_data_set_warns_and_ends_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    service = FakeService(alternating())

    with caplog.at_level(logging.WARNING, "mint.recipe"):
        run(tmp_path, service, guesses(batches=2), max_steps=3)

    assert len(rows(tmp_path)) == 2
    assert "max_steps=3, and the data set has 2" in caplog.text


def test_epochs_go_through_the_data_set_again(tmp_path: Path):
    service = FakeService(alternating())

    run(tmp_path, service, guesses(batches=2, groups=1), num_epochs=2, max_steps=3)

    assert trained(service) == [[0], [1], [0]]


def test_an_empty_data_set_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="no batches"):
        run(tmp_path, FakeService(), [])


def test_a_contradiction_is_refused_before_anything_is_sent(tmp_path: Path):
    service = FakeService()

    with pytest.raises(ConfigurationError, match="kl_reference_config"):
        run(tmp_path / "run", service, guesses(batches=1), kl_penalty_coef=0.1)

    assert service.calls == []
    assert not (tmp_path / "run").exists()


def test_two_runs_one_after_the_other_in_one_process(tmp_path: Path):
    service = FakeService(alternating())

    run(tmp_path / "one", service, guesses(batches=1))
    run(tmp_path / "two", service, guesses(batches=1))

    assert rows(tmp_path / "one")[-1][REWARD] == rows(tmp_path / "two")[-1][REWARD] == 0.5


def test_two_runs_side_by_side_share_a_service(tmp_path: Path):
    service = FakeService(alternating(), latency_s=0.001)

    async def both() -> None:
        async with asyncio.TaskGroup() as tasks:
            for name in ("one", "two"):
                tasks.create_task(main(config(tmp_path / name, service, guesses(batches=2))))

    asyncio.run(both())

    assert [len(rows(tmp_path / name)) for name in ("one", "two")] == [2, 2]
    assert [client.steps for client in service.training_clients] == [2, 2]


def test_two_runs_in_one_folder_do_not_mix(tmp_path: Path):
    """The second is refused before it has touched anything, and the first goes on."""
    service = FakeService(alternating(), latency_s=0.001)

    async def both() -> list[Any]:
        runs = (main(config(tmp_path, service, guesses(batches=2))) for _ in range(2))
        return await asyncio.gather(*runs, return_exceptions=True)

    first, second = asyncio.run(both())

    assert first is None
    assert isinstance(second, ConfigurationError)
    assert "another run is writing there" in str(second)
    assert [row["step"] for row in rows(tmp_path)] == [0, 1]
    assert len(service.training_clients) == 1


def test_nothing_is_printed_to_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run(tmp_path, FakeService(alternating()), guesses(batches=2), num_groups_to_log=1)

    assert capsys.readouterr().out == ""


def test_no_socket_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a socket was connected")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)

    run(tmp_path, FakeService(alternating()), guesses(batches=1))


HEAVY = ("torch", "transformers", "datasets", "rich")


def test_a_run_with_a_registered_tokenizer_needs_no_heavy_package(tmp_path: Path):
    """In a process of its own where these cannot be imported (the SDK takes torch if it is there)."""
    script = f"""
import asyncio, sys
from pathlib import Path
for name in {HEAVY}:
    sys.modules[name] = None  # an import of it fails
from mint.recipe.tokenizers import register_tokenizer
from mint.recipe.rl.rollouts import get_rollout_executor
from mint.recipe.rl.train import main
from tests.recipe.fake_service import FakeService
from tests.recipe.rl.guessing import alternating, config, guesses
from tests.recipe.tokens import ByteTokenizer
register_tokenizer("test/tiny", ByteTokenizer)
folder = Path({str(tmp_path)!r})
asyncio.run(main(config(folder, FakeService(alternating()), guesses(1), num_groups_to_log=1)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert rows(tmp_path)[0][REWARD] == 0.5
    assert (tmp_path / "iteration_000000" / "train.html").exists()


def test_spans_of_a_step_are_charted_and_traced_if_asked_for(tmp_path: Path):
    run(
        tmp_path, FakeService(alternating()), guesses(batches=3), span_chart_every=2,
        enable_trace=True,
    )  # fmt: skip

    charts = sorted(path.name for path in tmp_path.glob("timing_gantt_*.html"))
    assert [name.split("_")[-1] for name in charts] == ["000000.html", "000002.html"]
    assert (tmp_path / "trace_events.jsonl").exists()


def test_groups_can_be_played_in_an_executor(tmp_path: Path):
    service = FakeService(alternating())

    with ThreadPoolExecutor(2) as threads:
        plan = config(tmp_path, service, guesses(batches=2))
        asyncio.run(main(plan, rollout_executor=threads))

    assert trained(service) == [[0, 1], [2, 3]]
    assert get_rollout_executor() is None


class Unwilling:
    """A live client: it may be neither pickled nor copied."""

    def __reduce__(self) -> Any:
        raise TypeError("pickled")

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("copied")


def test_a_builder_that_holds_a_live_client_is_neither_pickled_nor_copied(tmp_path: Path):
    data = Data(batches=guesses(batches=1), client=Unwilling())

    run(tmp_path, FakeService(alternating()), [], dataset_builder=data)

    assert "Unwilling" in (tmp_path / "config.json").read_text()


# ------------------------------------------------------------------ substeps


def sizes(service: FakeService) -> list[int]:
    return [len(call.arguments["data"]) for call in service.called("forward_backward")]


def test_substeps_are_nearly_equal_parts_in_order(tmp_path: Path):
    service = FakeService(alternating())

    run(tmp_path, service, guesses(batches=1, groups=5, size=1), num_substeps=2)

    first, second = (places(call) for call in service.called("forward_backward"))
    assert first + second == [0, 1, 2, 3, 4]
    assert {len(first), len(second)} == {2, 3}
    assert training_calls(service) == ["fb", "opt"] * 2


def test_a_batch_shorter_than_num_substeps_has_one_update_per_datum(tmp_path: Path):
    service = FakeService(alternating())

    run(tmp_path, service, guesses(batches=1, groups=1), num_substeps=8)

    assert sizes(service) == [1, 1]


def test_the_next_part_is_submitted_before_the_answer_of_the_last_is_awaited(tmp_path: Path):
    """The first part's answers are held back until the second part has been asked for."""
    service = FakeService(alternating())
    asked_when_answered: list[int] = []
    optimize = service.promise

    def promise(call: Any, make: Any, left: Any = lambda: None) -> Any:
        future = optimize(call, make, left)
        if call.name == "optim_step":
            future.add_done_callback(
                lambda _: asked_when_answered.append(len(service.called("forward_backward")))
            )
        return future

    service.promise = promise  # type: ignore[method-assign]
    service.latency_s = 0.02

    run(tmp_path, service, guesses(batches=1, groups=2), num_substeps=2)

    assert asked_when_answered == [2, 2]


def test_training_logprobs_of_unequal_parts_belong_to_their_datums(tmp_path: Path):
    """Drift grows with each sampled token; a mixed-up order would compare different tokens."""
    service = FakeService(alternating())
    sampled = iter([-1.0, -2.0, -3.0])
    service.respond = lambda prompt, params: ([GOOD], [next(sampled)], "stop")

    run(tmp_path, service, guesses(batches=1, groups=3, size=1), num_substeps=2)

    assert sorted(sizes(service)) == [1, 2]
    assert rows(tmp_path)[0]["optim/kl_sample_train_v2"] == pytest.approx(0.0)


# ------------------------------------------------------------- steps that learn nothing


def test_when_every_prompt_overflows_the_step_counts_and_sends_nothing(tmp_path: Path):
    service = FakeService()

    run(tmp_path, service, guesses(batches=2, overflows=True))

    assert training_calls(service) == []
    for row in rows(tmp_path):
        assert row[REWARD] == pytest.approx(-0.1)
        assert row["optim/skipped_step"] == 1
    assert records(tmp_path)[-1]["name"] == "final"


def test_members_that_overflow_count_in_the_mean_and_give_no_datum(tmp_path: Path):
    service = FakeService(always(GOOD))
    batch = [GuessGroup(0), GuessGroup(1, overflows=True)]

    run(tmp_path, service, [batch])

    assert [places(call) for call in service.called("forward_backward")] == [[0, 0]]
    assert rows(tmp_path)[0][REWARD] == pytest.approx((1 + 1 - 0.1 - 0.1) / 4)


def test_a_step_that_sent_nothing_keeps_its_sampler(tmp_path: Path):
    service = FakeService(always(BAD))

    run(tmp_path, service, guesses(batches=3), remove_constant_reward_groups=True)

    assert service.names().count("save_weights_and_get_sampling_client") == 1
    assert [row["optim/skipped_step"] for row in rows(tmp_path)] == [1, 1, 1]


def test_constant_groups_are_left_out_and_the_others_keep_their_tags(tmp_path: Path):
    answers = iter([[GOOD], [GOOD], [GOOD], [BAD]])  # two members of each group, in order
    service = FakeService(lambda prompt, params: (next(answers), [-0.5], "stop"))
    batch = [GuessGroup(0, tag="easy"), GuessGroup(1, tag="hard")]

    run(tmp_path, service, [batch], remove_constant_reward_groups=True)

    [row] = rows(tmp_path)
    assert trained(service) == [[1]]
    assert (row["env/easy/reward/total"], row["env/hard/reward/total"]) == (1.0, 0.5)
    assert row[REWARD] == 0.75  # of all that was played, trained or not
    assert (row["batch/groups_completed"], row["batch/groups_kept"]) == (2, 1)
    assert row["tokens/discarded/sampled"] == 2


def test_the_last_row_has_the_reward_of_all_training_episodes_as_its_last_correct(tmp_path: Path):
    answers = iter([[GOOD], [GOOD], [GOOD], [BAD]])
    service = FakeService(lambda prompt, params: (next(answers), [-0.5], "stop"))

    run(tmp_path, service, [[GuessGroup(0, tag="easy"), GuessGroup(1, tag="hard")]])

    last = [key for key in rows(tmp_path)[-1] if key.endswith("/correct")][-1]
    assert last == "env/all/correct"


# ------------------------------------------------------------------ failures


def test_the_first_failed_rollout_ends_the_run_as_itself(tmp_path: Path):
    batch = [GuessGroup(0), GuessGroup(1, raises=RuntimeError("the game crashed"))]

    with pytest.raises(RuntimeError, match="the game crashed"):
        run(tmp_path, FakeService(alternating()), [batch])


def test_a_group_that_fails_under_a_tolerant_strategy_is_left_out(tmp_path: Path):
    broken = GuessGroup(0, raises=RuntimeError("the game crashed"))
    service = FakeService(alternating())

    run(tmp_path, service, [[broken, GuessGroup(1)]], rollout_error_tolerance=True)

    [row] = rows(tmp_path)
    assert trained(service) == [[1]]
    assert (row["batch/groups_requested"], row["batch/groups_failed"]) == (2, 1)
    assert row["rollout_errors/groups_skipped"] == 1
    assert row["rollout_errors/RuntimeError"] == row["rollout_errors/total"] > 1  # it was retried


def test_after_a_last_step_without_episodes_the_last_row_repeats_what_there_is(tmp_path: Path):
    broken = GuessGroup(2, raises=RuntimeError("the game crashed"))
    service = FakeService(alternating())
    strategy = RetryOnFailure(max_retries=0)

    run(tmp_path, service, [[GuessGroup(0)], [broken]], rollout_error_tolerance=strategy)

    *_, skipped, last = rows(tmp_path)
    assert (skipped["step"], skipped["optim/skipped_step"]) == (1, 1)
    assert REWARD not in skipped
    assert (last["step"], last[REWARD]) == (2, 0.5)


def test_a_failed_run_leaves_no_task_and_cleans_up_every_group_once(tmp_path: Path):
    cleaned: list[int] = []
    broken = GuessGroup(0, cleaned=cleaned, raises=RuntimeError("the game crashed"))
    batch = [broken, GuessGroup(1, cleaned=cleaned), GuessGroup(2, cleaned=cleaned)]

    with pytest.raises(RuntimeError, match="the game crashed"):
        run(tmp_path, FakeService(alternating()), [batch])

    assert sorted(cleaned) == [0, 1, 2]


def test_a_cancelled_run_leaves_no_task_and_cleans_up_every_group_once(tmp_path: Path):
    cleaned: list[int] = []

    async def cancelled() -> set[Any]:
        def cancel(call: Any) -> None:
            if call.name == "sample":
                service.latency_s = 60.0  # so the rollouts are still waiting when it comes
                loop.call_later(0.01, task.cancel)

        service = FakeService(alternating(), fail=cancel)
        loop = asyncio.get_running_loop()
        batch = [GuessGroup(place, cleaned=cleaned) for place in range(3)]
        task = asyncio.create_task(main(config(tmp_path, service, [batch])))
        with pytest.raises(asyncio.CancelledError):
            await task
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(cancelled()) == set()
    assert sorted(cleaned) == [0, 1, 2]


# ------------------------------------------------------------------ temperature and KL


def test_the_sampling_temperature_is_sent_with_the_loss(tmp_path: Path):
    service = FakeService(alternating())

    run(
        tmp_path, service, guesses(batches=1), temperature=0.7, loss_fn="ppo",
        loss_fn_config={"clip_low_threshold": 0.9},
    )  # fmt: skip

    [call] = service.called("forward_backward")
    assert call.arguments["loss_fn_config"] == {"temperature": 0.7, "clip_low_threshold": 0.9}
    [sample, _] = service.called("sample")
    assert sample.arguments["sampling_params"].temperature == 0.7


@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_logprobs_that_are_of_temperature_one_need_no_temperature_with_the_loss(
    tmp_path: Path, temperature: float
):
    service = FakeService(alternating())

    run(tmp_path, service, guesses(batches=1), temperature=temperature)

    [call] = service.called("forward_backward")
    assert call.arguments["loss_fn_config"] is None


def test_a_server_that_cannot_is_sent_nothing_and_the_user_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    service = FakeService(alternating(), scales_loss_by_temperature=False)

    with caplog.at_level(logging.WARNING, "mint.recipe"):
        run(tmp_path, service, guesses(batches=3), temperature=0.7)

    assert {call.arguments["loss_fn_config"] for call in service.called("forward_backward")} == {
        None
    }
    told = [record.message for record in caplog.records if "temperature=0.7" in record.message]
    assert len(told) == 1
    assert "kl_penalty_coef" in told[0]


def reference_run(folder: Path, service: FakeService, **fields: Any) -> dict[str, Any]:
    run(
        folder, service, guesses(batches=1, groups=1), kl_penalty_coef=0.5,
        kl_reference_config=KLReferenceConfig(base_model="test/reference"), **fields,
    )  # fmt: skip
    return rows(folder)[0]


def test_the_reference_scores_at_the_temperature_of_the_rollouts(tmp_path: Path):
    asked: list[float] = []

    def score(tokens: list[int], temperature: float) -> list[float]:
        asked.append(temperature)
        return [-1.0] * len(tokens)

    service = FakeService(alternating(), score=score)

    row = reference_run(tmp_path, service, temperature=0.7)

    assert set(asked) == {0.7}
    # sampled at -0.5 and -0.1, the reference says -1: d is 0.5 and 0.9 nats in both episodes
    assert row["kl_policy_base"] == pytest.approx(0.7)
    [call] = service.called("forward_backward")
    good = call.arguments["data"][0].loss_fn_inputs["advantages"]
    assert isinstance(good, TensorData)
    assert good.tolist() == pytest.approx([0.5 + 0.5 * (0.7 - 0.5), 0.5 + 0.5 * (0.7 - 0.9)])


def test_the_reference_is_the_checkpoint_it_names(tmp_path: Path):
    service = FakeService(alternating())
    run(tmp_path / "first", service, guesses(batches=1))
    path = records(tmp_path / "first")[-1]["sampler_path"]
    reference = KLReferenceConfig(base_model="test/tiny", load_checkpoint_path=path)

    run(
        tmp_path / "second", service, guesses(batches=1), kl_penalty_coef=0.5,
        kl_reference_config=reference,
    )  # fmt: skip

    [call] = service.called("create_sampling_client")
    assert call.arguments["model_path"] == path


def test_post_kl_scores_the_step_under_the_new_weights_at_every_step(tmp_path: Path):
    service = FakeService(alternating())

    run(tmp_path, service, guesses(batches=2, groups=1), compute_post_kl=True)

    scored = [call.client.steps for call in service.called("compute_logprobs")]
    assert sorted(scored) == [1, 1, 2, 2]
    # the new weights say -1, sampled at -0.5 and -0.1
    assert [row["kl_pre_post_v1"] for row in rows(tmp_path)] == pytest.approx([0.7, 0.7])


# ------------------------------------------------------------------ saves and evaluations


def test_a_periodic_save_is_also_the_next_steps_sampler(tmp_path: Path):
    service = FakeService(alternating())

    run(tmp_path, service, guesses(batches=4, groups=1), save_every=2, ttl_seconds=60)

    assert [record["name"] for record in records(tmp_path)] == ["000002", "final"]
    periodic = records(tmp_path)[0]
    assert service.checkpoints[periodic["state_path"]].ttl_seconds == 60
    [call] = service.called("create_sampling_client")
    assert call.arguments["model_path"] == periodic["sampler_path"]
    ephemeral = service.called("save_weights_and_get_sampling_client")
    assert [call.client.steps for call in service.called("sample")] == [0, 1, 2, 3]
    assert len(ephemeral) == 3  # at the start, and after steps 0 and 2


def test_rolling_saves_replace_each_other(tmp_path: Path):
    service = FakeService(alternating())

    run(
        tmp_path, service, guesses(batches=4, groups=1), save_every=3, rolling_save_every=1,
        rolling_ttl_seconds=60,
    )  # fmt: skip

    first, second, periodic, final = records(tmp_path)
    assert first["rolling"]
    assert second["rolling"]
    assert "rolling" not in periodic
    assert "sampler_path" not in second
    assert service.deleted == [first["state_path"], second["state_path"]]
    assert final["final"]


class Steps(SamplingClientEvaluator):
    """Answers with the age of the weights it is given."""

    def __init__(self, name: str = "steps") -> None:
        self.name = name

    async def __call__(self, sampling_client: Any) -> dict[str, float]:
        return {f"{self.name}/weights": sampling_client.steps}


def test_evaluations_are_of_the_weights_before_their_step_and_of_the_final_ones(tmp_path: Path):
    service = FakeService(alternating())

    run(tmp_path, service, guesses(batches=3), eval_every=2, evaluator_builders=[Steps])

    assert [(row["step"], row.get("steps/weights")) for row in rows(tmp_path)] == [
        (0, 0), (1, None), (2, 2), (3, 3),
    ]  # fmt: skip
    last = rows(tmp_path)[-1]
    assert last[REWARD] == 0.5
    assert "progress/batch" not in last
    keys = list(last)
    assert keys.index("steps/weights") < keys.index(REWARD)


def test_a_test_set_is_played_under_its_own_name(tmp_path: Path):
    service = FakeService(alternating())
    data = Data(batches=guesses(batches=1), test=[[GuessGroup(7, size=1), GuessGroup(8, size=1)]])

    run(tmp_path, service, [], dataset_builder=data, eval_every=5)

    first, last = rows(tmp_path)
    assert first["test/env/all/reward/total"] == 0.5
    assert first["test/env/all/total_episodes"] == 2
    assert first["env/all/total_episodes"] == 4
    assert [key for key in last if key.endswith("/correct")][-1] == "env/all/correct"


def test_evaluators_of_one_name_are_told_apart(tmp_path: Path):
    run(
        tmp_path, FakeService(alternating()), guesses(batches=1), eval_every=1,
        evaluator_builders=[Steps, Steps, Steps],
    )  # fmt: skip

    first = rows(tmp_path)[0]
    assert {"steps/weights", "steps_2/weights", "steps_3/weights"} <= set(first)


def test_no_evaluation_with_eval_every_zero(tmp_path: Path):
    run(
        tmp_path, FakeService(alternating()), guesses(batches=1), eval_every=0,
        evaluator_builders=[Steps],
    )  # fmt: skip

    [row] = rows(tmp_path)
    assert "steps/weights" not in row


def test_the_bound_on_requests_in_flight_holds(tmp_path: Path):
    service = FakeService(alternating(), latency_s=0.002)

    run(tmp_path, service, guesses(batches=1, groups=8), max_concurrent_requests=3)

    assert service.most_samples_in_flight == 3


def test_a_reward_that_is_no_number_is_refused_by_the_name_of_its_group(tmp_path: Path):
    class Broken(GuessGroup):
        async def compute_group_rewards(
            self, trajectory_group: Any, env_group: Any
        ) -> list[tuple[float, Any]]:
            return [(0.0, {}), (float("nan"), {})]

    with pytest.raises(DataValidationError, match="group 1, member 1"):
        run(tmp_path, FakeService(alternating()), [[GuessGroup(0), Broken(1)]])


def test_rewards_that_are_equally_infinite_do_not_pass_as_a_group_without_signal(tmp_path: Path):
    class Infinite(GuessGroup):
        async def compute_group_rewards(
            self, trajectory_group: Any, env_group: Any
        ) -> list[tuple[float, Any]]:
            return [(float("inf"), {})] * 2

    with pytest.raises(DataValidationError, match="group 0, member 0"):
        run(
            tmp_path, FakeService(alternating()), [[Infinite(0)]],
            remove_constant_reward_groups=True,
        )  # fmt: skip


def test_a_run_of_no_steps_writes_no_row(tmp_path: Path):
    service = FakeService(alternating())

    run(tmp_path, service, guesses(batches=1), max_steps=0)

    assert not (tmp_path / "metrics.jsonl").exists()
    assert training_calls(service) == []


def test_a_step_that_could_not_learn_says_why_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    def cut(prompt: list[int], params: Any) -> Any:
        return [BAD] * 8, [-0.5] * 8, "length"

    run(tmp_path, FakeService(cut), guesses(batches=3), max_tokens=8)

    told = [line for line in capsys.readouterr().err.splitlines() if "max_tokens=8" in line]
    assert len(told) == 1
    assert "max_tokens=8" in (tmp_path / "logs.log").read_text()
    assert [row["health/could_learn"] for row in rows(tmp_path)] == [0, 0, 0]
