"""The reward of the quickstart, its data and its settings; no server needed."""

import random

import pytest
from quickstart.custom_reward import (
    Group,
    RewardBreakdown,
    SetupError,
    compute_reward_breakdown,
    extract_prediction,
    is_mint_server,
    make_datums,
    make_task,
    read_settings,
    text_plot,
)

from mint import types
from quickstart import custom_reward


@pytest.mark.parametrize(
    ("response", "prediction"),
    [
        (" 42", 42),
        ("The answer is 7, not 8.", 7),
        ("-5", -5),
        ("= \u22125", -5),
        ("+3", 3),
        ("0012", 12),
        ("12-5", 12),
        ("", None),
        ("forty-two", None),
    ],
)
def test_the_prediction_is_the_first_integer_with_its_sign(response: str, prediction: int | None):
    assert extract_prediction(response) == prediction


def test_the_right_answer_earns_everything():
    assert compute_reward_breakdown(" 80", 80) == RewardBreakdown(1.0, 0.2, 0.5, 0.3)


def test_an_answer_without_a_number_earns_nothing():
    assert compute_reward_breakdown("eighty", 80) == RewardBreakdown(0.0, 0.0, 0.0, 0.0)


def test_a_near_answer_earns_by_its_distance_relative_to_the_target():
    reward = compute_reward_breakdown("60", 80)  # off by a quarter of the target

    assert reward.distance_reward == pytest.approx(0.5 * 0.75)
    assert reward.total == pytest.approx(0.2 + 0.375)
    assert reward.exact_bonus == 0.0


def test_small_targets_measure_distance_on_a_scale_of_twenty():
    assert compute_reward_breakdown("12", 2).distance_reward == pytest.approx(0.25)


def test_a_far_answer_still_earns_its_format():
    assert compute_reward_breakdown("100000", 80).total == pytest.approx(0.2)


def test_a_model_that_babbles_digits_breaks_nothing():
    assert compute_reward_breakdown("9" * 5000, 80).total == pytest.approx(0.2)


def test_the_same_seed_asks_the_same_questions():
    first, second = random.Random(5), random.Random(5)

    assert [make_task(first) for _ in range(20)] == [make_task(second) for _ in range(20)]


def test_a_question_rewards_its_own_answer_fully():
    rng = random.Random(0)
    for task in (make_task(rng) for _ in range(50)):
        assert compute_reward_breakdown(f" {task.answer}", task.answer).total == 1.0
        assert compute_reward_breakdown(f" {task.answer + 1}", task.answer).total < 0.7


def group(*totals: float) -> Group:
    rewards = [RewardBreakdown(total, 0.0, 0.0, 0.0) for total in totals]
    sequences = [
        types.SampledSequence(
            stop_reason="stop",
            sequence_id=str(i),
            _tokens_list=[50 + i, 60 + i],
            _logprobs_list=[-1.0, -2.0],
        )
        for i in range(len(totals))
    ]
    return Group([1, 2, 3], sequences, rewards)


def test_a_datum_is_shifted_by_one_and_silent_on_the_prompt():
    first, _ = make_datums(group(1.0, 0.0))

    assert first.model_input.to_ints() == [1, 2, 3, 50]
    assert first.loss_fn_inputs["target_tokens"].tolist() == [2, 3, 50, 60]
    assert first.loss_fn_inputs["logprobs"].tolist() == [0.0, 0.0, -1.0, -2.0]
    assert first.loss_fn_inputs["advantages"].tolist() == [0.0, 0.0, 0.5, 0.5]


def test_advantages_of_a_group_cancel():
    datums = make_datums(group(1.0, 0.2, 0.3))

    assert sum(d.loss_fn_inputs["advantages"].tolist()[-1] for d in datums) == pytest.approx(
        0, abs=1e-6
    )


def test_a_group_of_equal_rewards_teaches_nothing():
    assert make_datums(group(0.7, 0.7, 0.7)) == []


def test_the_defaults_are_those_of_the_page():
    assert read_settings({}) == custom_reward.Settings(
        base_model="Qwen/Qwen3-0.6B",
        lora_rank=16,
        steps=8,
        batch=8,
        group=6,
        learning_rate=2e-5,
        max_tokens=16,
        temperature=0.8,
        seed=0,
    )


def test_an_empty_variable_counts_as_unset():
    assert read_settings({"MINT_LORA_RANK": "", "MINT_BASE_MODEL": ""}) == read_settings({})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MINT_LORA_RANK", "0"),
        ("MINT_CUSTOM_REWARD_STEPS", "many"),
        ("MINT_CUSTOM_REWARD_BATCH", "-1"),
        ("MINT_CUSTOM_REWARD_GROUP", "1"),
        ("MINT_CUSTOM_REWARD_LR", "nan"),
        ("MINT_CUSTOM_REWARD_LR", "1e-4x"),
        ("MINT_CUSTOM_REWARD_MAX_TOKENS", "1.5"),
        ("MINT_CUSTOM_REWARD_TEMPERATURE", "0"),
        ("MINT_CUSTOM_REWARD_SEED", "-3"),
    ],
)
def test_a_bad_value_is_refused_by_its_name(name: str, value: str):
    with pytest.raises(SetupError, match=name):
        read_settings({name: value})


def test_a_server_that_is_not_there_is_named():
    with pytest.raises(SetupError, match=r"no server answers at http://127\.0\.0\.1:9"):
        is_mint_server({"MINT_BASE_URL": "http://127.0.0.1:9", "MINT_API_KEY": "sk-x"})


def test_the_plot_has_a_column_a_step_and_its_marks_rise_with_the_curve():
    plot = text_plot([0.0, 0.5, 1.0], height=3)

    assert plot.splitlines()[:3] == ["  1.00 |     *", "  0.50 |   *  ", "  0.00 | *    "]


def test_a_flat_curve_can_be_plotted():
    assert text_plot([0.4, 0.4]).count("*") == 2
