"""What a pass is refused for, whoever asks."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from mint.core.datum import Datum
from mint.core.errors import LossInputError, UserError
from mint.core.ids import ModelId
from mint.core.model_input import ModelInput
from mint.core.operations import ForwardBackward
from mint.core.passes import check_pass


@dataclass(frozen=True)
class Tiny:
    vocab_size: int = 10
    max_context: int = 4


def datum(tokens: list[int], targets: list[int]) -> Datum:
    return Datum(ModelInput.from_ints(tokens), {"target_tokens": np.array(targets, np.int64)})


def a_pass(*data: Datum) -> ForwardBackward:
    return ForwardBackward(model_id=ModelId("m"), data=data, loss_fn="cross_entropy")


def test_a_pass_that_fits_comes_back_with_its_tokens_counted():
    checked = check_pass(a_pass(datum([1, 2], [2, 3]), datum([4], [5])), Tiny())

    assert [tokens.tolist() for tokens in checked.inputs] == [[1, 2], [4]]
    assert checked.tokens == 3
    assert checked.loss.spec.name == "cross_entropy"


def test_a_pass_over_nothing_is_refused():
    with pytest.raises(UserError, match="data is empty"):
        check_pass(a_pass(), None)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (datum([1] * 5, [1] * 5), r"data\[1\].model_input has 5 tokens.*context holds 4"),
        (datum([1, 10], [1, 1]), r"data\[1\].model_input.tokens\[1\] is token id 10"),
        (
            datum([1, 2], [2, -1]),
            r"data\[1\].loss_fn_inputs\['target_tokens'\]\[1\] is token id -1",
        ),
    ],
    ids=["too long", "foreign id", "foreign target"],
)
def test_what_the_model_cannot_read_is_refused_once_the_model_is_known(second, message):
    operation = a_pass(datum([1], [2]), second)

    with pytest.raises(UserError, match=message):
        check_pass(operation, Tiny())
    assert check_pass(operation, None).tokens == 1 + len(second.model_input.tokens())


def test_what_the_loss_lacks_is_refused_even_before_the_model_is_known():
    operation = replace(a_pass(datum([1], [2])), loss_fn="ppo")

    with pytest.raises(LossInputError, match=r"data\[0\].loss_fn_inputs\['logprobs'\] is missing"):
        check_pass(operation, None)
