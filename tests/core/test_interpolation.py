import pytest

from mint.core.errors import UserError
from mint.core.interpolation import MAX_SOURCES, check_sum


def test_any_finite_numbers_are_coefficients():
    check_sum(["a", "b", "c"], [0.0, -3.0, 1e30])


@pytest.mark.parametrize(
    ("paths", "coefficients", "says"),
    [
        ([], [], "source_paths has 0"),
        (["a"] * (MAX_SOURCES + 1), [1.0] * (MAX_SOURCES + 1), "give 1 to 64"),
        (["a", "b"], [1.0], "coefficients has 1 numbers for 2 source_paths"),
        (["a", "b"], [1.0, float("inf")], r"coefficients\[1\]=inf"),
        (["a"], [float("nan")], r"coefficients\[0\]=nan"),
    ],
)
def test_a_sum_that_cannot_be_is_refused_by_name(paths, coefficients, says):
    with pytest.raises(UserError, match=says):
        check_sum(paths, coefficients)
