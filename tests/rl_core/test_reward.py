"""Reward: any number becomes a score, and what goes with it is sorted into metrics and logs."""

import math
import pickle
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from tests.architecture.test_light import HEAVY, run
from tests.recipe.test_surface import WITHOUT_TORCH

from mint.rl_core import FailedReward, Reward
from mint.rl_core.reward import metrics_and_logs


@pytest.mark.parametrize(
    "half",
    [0.5, Decimal("0.5"), Fraction(1, 2), np.float32(0.5), np.float16(0.5), np.array(0.5),
     torch.tensor(0.5), torch.tensor(0.5, dtype=torch.bfloat16, requires_grad=True)],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_number_of_any_kind_becomes_a_float(half: Any):
    reward = Reward(half)

    assert type(reward.score) is float
    assert float(reward) == reward.score == 0.5
    assert reward == Reward(0.5)


@pytest.mark.parametrize("yes", [True, 1, np.bool_(True), np.int8(1), torch.tensor(True)])
def test_truth_and_whole_numbers_count(yes: Any):
    assert type(Reward(yes).score) is float
    assert Reward(yes).score == 1.0


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, np.float32("nan"), torch.tensor(math.nan), Decimal("NaN")],
    ids=str,
)
def test_a_score_that_is_not_finite_is_refused_with_its_value(value: Any):
    with pytest.raises(ValueError, match=r"score=.*(nan|inf|NaN)"):
        Reward(value)


def test_a_number_too_large_for_a_float_is_refused():
    with pytest.raises(ValueError, match="not finite"):
        Reward(10**400)


@pytest.mark.parametrize(
    ("value", "named"),
    [("1.0", "str '1.0'"), (None, "NoneType None"), (1j, "complex"), ([1.0], "list"),
     (np.zeros(3), r"ndarray of shape \(3,\)"), (torch.zeros(1), r"Tensor of shape \(1,\)"),
     (np.array("1.0"), "ndarray")],
    ids=str,
)  # fmt: skip
def test_what_is_no_number_is_refused_by_its_type(value: Any, named: str):
    with pytest.raises(TypeError, match=f"score is {named}"):
        Reward(value)


def test_metadata_is_a_copy_and_never_none():
    given = {"predicted": 42}
    reward = Reward(1.0, given)
    given["predicted"] = 43

    assert reward.metadata == {"predicted": 42}
    assert Reward(1.0).metadata == {}
    assert Reward(1.0, None).metadata == {}  # type: ignore[arg-type]
    assert Reward(1.0, MappingProxyType({"a": 1})) == Reward(1.0, {"a": 1})
    assert Reward(1.0).metadata is not Reward(1.0).metadata
    with pytest.raises(TypeError, match="metadata='oops' is str: give a dict"):
        Reward(1.0, "oops")  # type: ignore[arg-type]


def test_rewards_are_equal_by_value_and_can_be_kept_in_a_set():
    assert Reward(1.0, {"a": 1}) != Reward(1.0, {"a": 2})
    assert len({Reward(1.0, {"a": 1}), Reward(1, {"a": 1}), Reward(0.0)}) == 2
    assert pickle.loads(pickle.dumps(Reward(1.0, {"a": 1}))) == Reward(1.0, {"a": 1})


def test_a_failed_scoring_is_told_by_its_type_and_not_by_its_metadata():
    failed = FailedReward(0.0, {"error": "timeout"}, kind="timeout")

    assert isinstance(failed, Reward)
    assert failed != Reward(0.0, {"error": "timeout"})
    assert not isinstance(Reward(0.0, {"error": "No number found"}), FailedReward)


def test_a_reward_cannot_be_changed():
    with pytest.raises(AttributeError):
        Reward(1.0).score = 2.0  # type: ignore[misc]


def test_numbers_are_metrics_strings_are_logs_and_the_rest_is_shown():
    metrics, logs = metrics_and_logs(
        Reward(1.0, {
            "right": True, "predicted": 42, "part/format": np.float32(0.5), "loss": torch.tensor(2),
            "error": "none", "steps": [1, 2], "nothing": None,
        })
    )  # fmt: skip

    assert metrics == {"right": 1, "predicted": 42, "part/format": 0.5, "loss": 2}
    assert not any(isinstance(value, bool) for value in metrics.values())
    assert logs == {"error": "none", "steps": "[1, 2]", "nothing": "None"}


def test_keys_that_mean_something_else_in_a_row_are_prefixed():
    metrics, logs = metrics_and_logs(Reward(1.0, {"reward": 1, "score": 2, "step": "first", 7: 3}))  # type: ignore[dict-item]

    assert metrics == {"meta_reward": 1, "meta_score": 2, "7": 3}
    assert logs == {"meta_step": "first"}


def test_a_number_that_would_make_an_average_useless_is_only_shown():
    huge = 10**5000

    metrics, logs = metrics_and_logs(Reward(0.0, {"nan": math.nan, "inf": -math.inf, "huge": huge}))

    assert metrics == {}
    assert logs["nan"] == "nan"
    assert logs["inf"] == "-inf"
    assert "cannot be shown" in str(logs["huge"])  # int has a longest repr


def test_what_is_shown_is_cut_and_may_refuse_to_be_shown():
    class Shy:
        def __repr__(self) -> str:
            raise OSError("no")

    _, logs = metrics_and_logs(Reward(0.0, {"long": list(range(1000)), "shy": Shy()}))

    assert len(str(logs["long"])) == 500
    assert logs["shy"] == "<Shy that cannot be shown: OSError>"


def test_an_adapter_scores_where_torch_and_transformers_are_absent():
    script = """
from mint.rl_core import RLAdapter, Reward
class Half(RLAdapter):
    def __call__(self, prompt, response): return Reward(0.5)
import asyncio
print(Half()([1], [2]).score, asyncio.run(Half(seed=1).score([1], [2])).metadata)
"""
    assert run(WITHOUT_TORCH + script) == "0.5 {'seed': 1}"


def test_the_package_loads_nothing_before_a_name_is_used():
    loaded = run(
        """
        import sys, mint.rl_core
        dir(mint.rl_core)
        print(*[name for name in sys.argv[1:] if name in sys.modules])
        """,
        *HEAVY, "chz",
    )  # fmt: skip
    assert loaded == ""


def test_a_star_import_gives_the_names_and_no_modules():
    names: dict[str, object] = {}
    exec("from mint.rl_core import *", names)

    assert {"RLAdapter", "Reward", "FailedReward", "ModelInfo", "ScoringContext"} <= names.keys()
    assert "adapter" not in names
