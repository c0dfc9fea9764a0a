"""The pictures in the docs: how cost grows, and what was learned."""

import json
from xml.etree import ElementTree

import pytest
from docs.performance import PICTURE, RESULTS

from benchmarks import math_rl, plot


def test_every_size_has_a_point_and_dearer_is_higher():
    picture = ElementTree.fromstring(plot.scaling({1: 4.0, 8: 2.0}, {64: 1.0, 128: 3.0}))
    circles = [one for one in picture.iter() if one.tag.endswith("circle")]

    heights = [float(one.attrib["cy"]) for one in circles]
    assert len(circles) == 4
    assert heights[0] < heights[1]  # y runs downwards
    assert heights[2] > heights[3]


@pytest.mark.parametrize("highest", [0.03, 1.0, 4.0, 7.3, 260.0])
def test_ticks_begin_at_zero_and_reach_the_highest(highest: float):
    levels = plot.ticks(highest)

    assert levels[0] == 0
    assert levels[-2] < highest <= levels[-1] * (1 + 1e-9)
    assert 3 <= len(levels) <= 6


@pytest.mark.skipif(not (RESULTS / "scaling.json").exists(), reason="not measured")
def test_the_picture_in_the_docs_is_that_of_the_result():
    found = json.loads((RESULTS / "scaling.json").read_text())
    sampling, training = (
        {int(size): value for size, value in found[name].items()}
        for name in ("sampling_ms", "training_ms")
    )

    assert PICTURE.read_text() == plot.scaling(sampling, training)


@pytest.mark.skipif(not (RESULTS / "math_rl.json").exists(), reason="not measured")
def test_the_curves_in_the_docs_are_those_of_the_result():
    found = json.loads((RESULTS / "math_rl.json").read_text())

    assert math_rl.PICTURE.read_text() == math_rl.picture(found["seeds"])


def test_curves_of_several_runs_share_one_frame():
    picture = ElementTree.fromstring(
        plot.curves("Reward", "step", {"seed 0": [0.0, 0.5, 1.0], "seed 1": [0.25, 0.5]})
    )
    circles = [one for one in picture.iter() if one.tag.endswith("circle")]

    first, middle, last, other, beside = (float(one.attrib["cy"]) for one in circles)
    assert first > other > middle == beside > last
    assert circles[1].attrib["cx"] == circles[4].attrib["cx"]
