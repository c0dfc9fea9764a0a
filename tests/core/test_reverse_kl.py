from dataclasses import dataclass

import numpy as np
import pytest

from mint.core.datum import ReverseKLDatum
from mint.core.errors import UserError
from mint.core.ids import ModelId
from mint.core.model_input import ModelInput, OtherChunk
from mint.core.operations import ReverseKL
from mint.core.reverse_kl import check_reverse_kl


@dataclass(frozen=True)
class Base:
    vocab_size: int = 100
    max_context: int = 16


def datum(
    student=(1, 2, 7, 8),
    reference=(50, 51, 52, 7, 8),
    targets=(7, 8, 9),
    weights=(0.0, 1.0, -2.0),
) -> ReverseKLDatum:
    return ReverseKLDatum(
        ModelInput.from_ints(student),
        ModelInput.from_ints(reference),
        np.array(targets, dtype=np.int64),
        np.array(weights, dtype=np.float32),
    )


def asked(*data: ReverseKLDatum, temperature: float = 1.0) -> ReverseKL:
    return ReverseKL(
        model_id=ModelId("m"), data=data, reference_base="other", reference_weights=None,
        temperature=temperature,
    )  # fmt: skip


def test_inputs_that_begin_differently_and_end_alike_are_read():
    checked = check_reverse_kl(asked(datum(), datum()), Base(), Base())

    assert [tokens.tolist() for tokens in checked.student_inputs] == [[1, 2, 7, 8]] * 2
    assert [tokens.tolist() for tokens in checked.reference_inputs] == [[50, 51, 52, 7, 8]] * 2
    assert checked.tokens == 18


def test_one_target_asks_nothing_of_the_ends():
    check_reverse_kl(asked(datum((1,), (2, 3), (9,), (1.0,))), Base(), Base())


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"student": (1, 2, 7, 8, 9)}, r"data\[1\].student_input: token 3 is 8, but target_tokens"),
        ({"reference": (5, 6, 7, 9)}, r"data\[1\].reference_input: token 3 is 9, but target_tok"),
        ({"student": (7, 8)}, r"student_input has 2 tokens, but target_tokens has 3"),
        ({"reference": ()}, r"reference_input has 0 tokens"),
        ({"targets": (), "weights": ()}, r"data\[1\].target_tokens has shape \[0\]"),
        ({"targets": ((7, 8, 9),)}, r"target_tokens has shape \[1, 3\]"),
        ({"weights": (1.0, 1.0)}, r"data\[1\].weights has shape \[2\]"),
        ({"weights": (1.0, np.nan, 1.0)}, r"data\[1\].weights\[1\] is nan"),
        ({"targets": (7, 8, 100)}, r"data\[1\].target_tokens\[2\] is token id 100"),
        ({"student": (-1, 7, 8)}, r"data\[1\].student_input.tokens\[0\] is token id -1"),
        ({"reference": (*range(20), 7, 8)}, r"data\[1\].reference_input has 22 tokens"),
    ],
)
def test_a_datum_that_does_not_fit_is_refused_by_name(wrong: dict, says: str):
    with pytest.raises(UserError, match=says):
        check_reverse_kl(asked(datum(), datum(**wrong)), Base(), Base())


def test_an_image_is_refused_in_either_input():
    image = ModelInput((OtherChunk("an image"),))
    with pytest.raises(UserError, match="an image"):
        check_reverse_kl(
            asked(ReverseKLDatum(datum().student_input, image, np.array([1]), np.ones(1, "f4"))),
            None, None,
        )  # fmt: skip


@pytest.mark.parametrize("temperature", [0.0, -1.0, 1e-40, 0.009, float("nan"), float("inf")])
def test_a_temperature_out_of_range_is_refused_with_the_range(temperature: float):
    with pytest.raises(UserError, match=r"temperature=.*finite number of 0\.01 or more"):
        check_reverse_kl(asked(datum(), temperature=temperature), Base(), Base())


def test_the_lowest_temperature_is_taken():
    check_reverse_kl(asked(datum(), temperature=0.01), Base(), Base())


def test_a_reference_with_another_number_of_ids_is_refused():
    with pytest.raises(UserError, match="'other' has 101 token ids, the model in training 100"):
        check_reverse_kl(asked(datum()), Base(), Base(vocab_size=101))


def test_no_data_is_refused():
    with pytest.raises(UserError, match="data is empty"):
        check_reverse_kl(asked(), Base(), Base())
