"""How the learning rate falls."""

import pytest

from mint.recipe.exceptions import ConfigurationError
from mint.recipe.utils.lr_scheduling import compute_schedule_lr_multiplier as multiplier


def test_schedules_at_the_start_and_in_the_middle():
    assert [multiplier("linear", step, 4) for step in range(4)] == [1.0, 0.75, 0.5, 0.25]
    assert multiplier("cosine", 0, 4) == 1.0
    assert multiplier("cosine", 2, 4) == pytest.approx(0.5)
    assert multiplier("constant", 3, 4) == 1.0


def test_a_step_beyond_the_end_learns_nothing_more():
    assert multiplier("linear", 9, 4) == 0.0


def test_a_warm_up_rises_to_the_schedule():
    assert [multiplier("constant", step, 10, warmup_steps=4) for step in range(5)] == [
        0.25, 0.5, 0.75, 1.0, 1.0,
    ]  # fmt: skip


def test_what_is_no_schedule_is_refused_with_those_there_are():
    with pytest.raises(ConfigurationError, match="linear, cosine, constant"):
        multiplier("step", 0, 4)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="total_steps=0"):
        multiplier("linear", 0, 0)
