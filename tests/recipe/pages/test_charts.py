import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mint.recipe.pages.charts import (
    HEIGHT,
    WIDTH,
    Curve,
    draw,
    label,
    nice_ticks,
    smoothed,
    thin,
    whole_ticks,
)

finite = st.floats(-1e9, 1e9, allow_nan=False).filter(lambda x: x == 0 or abs(x) > 1e-6)


def test_a_curve_runs_from_corner_to_corner_of_the_axes():
    chart = draw("reward", [Curve("mean", [(0, 0.0), (1, 0.5), (2, 1.0)])])

    assert chart is not None
    middle_x, middle_y = (chart.left + chart.right) / 2, (chart.top + chart.bottom) / 2
    assert chart.strokes[0].path == (
        f"M{float(chart.left)} {float(chart.bottom)}L{middle_x} {middle_y}"
        f"L{float(chart.right)} {float(chart.top)}"
    )
    assert [tick.label for tick in chart.y_ticks] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    assert [tick.label for tick in chart.x_ticks] == ["0", "1", "2"]


def test_a_chart_says_in_words_what_it_shows():
    chart = draw("reward", [Curve("mean", [(0, -0.1), (1, 0.9), (2, 0.5)])])

    assert chart is not None
    assert chart.summary == ("mean: from -0.1 at step 0 to 0.5 at step 2; between -0.1 and 0.9.")
    assert [dot.label for dot in chart.strokes[0].dots][1] == "mean: 0.9 at step 1"


def test_what_is_no_number_leaves_a_gap():
    chart = draw("loss", [Curve("loss", [(0, 1.0), (1, math.nan), (2, 2.0), (3, math.inf)])])

    assert chart is not None
    assert chart.strokes[0].path.count("M") == 2
    assert "L" not in chart.strokes[0].path


def test_no_numbers_no_chart():
    assert draw("empty", []) is None
    assert draw("nan", [Curve("loss", [(0, math.nan)])]) is None


def test_a_single_value_stands_in_the_middle():
    chart = draw("once", [Curve("one", [(5, 3.0)])])

    assert chart is not None
    [dot] = chart.strokes[0].dots
    assert dot.x == (chart.left + chart.right) / 2
    assert [tick.label for tick in chart.x_ticks] == ["5"]
    assert chart.summary == "one: 3 at step 5."


def test_only_several_curves_need_a_legend():
    one, two = Curve("a", [(0, 1.0)]), Curve("b", [(0, 2.0)])

    alone, both = draw("t", [one]), draw("t", [one, two])
    assert alone is not None
    assert both is not None
    assert alone.legend == ()
    assert [(s.name, s.color) for s in both.legend] == [("a", 0), ("b", 1)]


def test_a_long_curve_gets_a_running_mean_in_the_same_colour():
    raw, mean = smoothed(Curve("r", [(i, float(i % 2)) for i in range(40)]))

    assert raw.is_faint
    assert mean.points[-1] == (39, 0.5)  # of 36 to 39
    assert mean.points[0] == (0, 0.0)  # nothing before it, and it does not look ahead
    chart = draw("r", [raw, mean])
    assert chart is not None
    assert [stroke.color for stroke in chart.strokes] == [0, 0]
    assert smoothed(Curve("short", [(0, 1.0)])) == [Curve("short", [(0, 1.0)])]


def test_neighbours_are_averaged_when_there_are_more_points_than_places():
    assert thin([(0, 1.0), (1, 3.0), (2, math.nan), (3, 5.0)], most=2) == [(0.5, 2.0), (2.5, 5.0)]
    assert thin([(0, 1.0)], most=2) == [(0, 1.0)]


@given(low=finite, span=st.floats(1e-6, 1e9))
def test_ticks_cover_the_values_and_are_few(low, span):
    high = low + span
    if high - low < abs(low) * 1e-9:
        return  # beyond what a float can tell apart
    ticks = nice_ticks(low, high)

    assert ticks[0] <= low + span * 1e-6
    assert ticks[-1] >= high - span * 1e-6
    assert 2 <= len(ticks) <= 13


@given(low=st.integers(0, 10**6), span=st.integers(0, 10**6))
def test_steps_are_marked_at_whole_numbers_that_exist(low, span):
    ticks = whole_ticks(low, low + span)

    assert 1 <= len(ticks) <= 9
    assert all(low <= tick <= low + span and tick == int(tick) for tick in ticks)


@given(st.lists(st.tuples(st.integers(0, 1000), finite), min_size=1, max_size=30))
def test_every_place_lies_within_the_drawing(points):
    chart = draw("any", [Curve("c", sorted(points))])

    assert chart is not None
    dots = chart.strokes[0].dots
    assert all(0 <= dot.x <= WIDTH and 0 <= dot.y <= HEIGHT for dot in dots)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0"),
        (0.0005, "0.0005"),
        (1234.0, "1234"),
        (56789.0, "56789"),
        (3e-7, "3.0e-7"),
        (2.5e6, "2.5e6"),
    ],
)
def test_numbers_beside_an_axis_are_short(value, written):
    assert label(value) == written
