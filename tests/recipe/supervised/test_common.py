"""Examples as datums, with numbers worked out by hand."""

import math

import numpy as np
import pytest
import torch
from tinker import types

from mint.recipe.exceptions import DataValidationError
from mint.recipe.supervised.common import (
    compute_bpb,
    compute_mean_nll,
    create_rightshifted_model_input_and_leftshifted_targets,
    datum_from_model_input_weights,
)


def text(*tokens: int) -> types.EncodedTextChunk:
    return types.EncodedTextChunk(tokens=list(tokens))


def image(tokens: int) -> types.ImageChunk:
    return types.ImageChunk(data=b"x", format="png", expected_tokens=tokens)


def model_input(*chunks) -> types.ModelInput:
    return types.ModelInput(chunks=list(chunks))


def tokens_of(datum: types.Datum) -> list[int]:
    return datum.model_input.to_ints()


def column(datum: types.Datum, name: str) -> list[float]:
    return datum.loss_fn_inputs[name].to_numpy().tolist()


def test_targets_are_the_inputs_shifted_by_one():
    datum = datum_from_model_input_weights(model_input(text(5, 6, 7, 8)), [0, 0, 1, 1])

    assert tokens_of(datum) == [5, 6, 7]
    assert column(datum, "target_tokens") == [6, 7, 8]
    assert column(datum, "weights") == [0, 1, 1]
    assert datum.loss_fn_inputs["target_tokens"].dtype == "int64"
    assert datum.loss_fn_inputs["weights"].dtype == "float32"


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_weights_may_be_a_list_an_array_or_a_tensor(kind):
    datum = datum_from_model_input_weights(model_input(text(5, 6, 7)), kind([0.0, 0.5, 2.0]))
    assert column(datum, "weights") == [0.5, 2.0]


def test_mean_lets_the_weights_that_remain_sum_to_one():
    datum = datum_from_model_input_weights(
        model_input(text(1, 2, 3, 4, 5)), [0, 0, 1, 1, 1], max_length=4, reduction="mean"
    )
    assert column(datum, "weights") == [0, 0.5, 0.5]  # the third weight was cut off


def test_mean_leaves_an_example_without_weight_alone():
    datum = datum_from_model_input_weights(model_input(text(1, 2)), [0, 0], reduction="mean")
    assert column(datum, "weights") == [0]


def test_a_weight_on_the_first_token_counts_for_nothing_because_it_is_no_target():
    datum = datum_from_model_input_weights(model_input(text(1, 2, 3)), [1, 1, 1], reduction="mean")
    assert column(datum, "weights") == [0.5, 0.5]


def test_a_text_chunk_is_cut_from_the_right():
    datum = datum_from_model_input_weights(
        model_input(text(1, 2), text(3, 4, 5)), [1] * 5, max_length=4
    )
    assert tokens_of(datum) == [1, 2, 3]
    assert column(datum, "target_tokens") == [2, 3, 4]


def test_max_length_equal_to_the_length_cuts_nothing():
    datum = datum_from_model_input_weights(model_input(text(1, 2, 3)), [1] * 3, max_length=3)
    assert column(datum, "target_tokens") == [2, 3]


def test_an_image_that_does_not_fit_goes_whole_and_so_does_what_follows():
    datum = datum_from_model_input_weights(
        model_input(text(1, 2, 3), image(4), text(9)), [1] * 8, max_length=5
    )
    assert tokens_of(datum) == [1, 2]
    assert column(datum, "target_tokens") == [2, 3]


def test_an_image_left_at_the_end_goes_too():
    datum = datum_from_model_input_weights(
        model_input(text(1, 2, 3), image(4), text(9)), [1] * 8, max_length=7
    )
    assert column(datum, "target_tokens") == [2, 3]


def test_an_image_counts_as_many_positions_as_it_has_tokens():
    chunks = [text(1), image(2), text(8, 9)]
    inputs, targets = create_rightshifted_model_input_and_leftshifted_targets(chunks)

    assert inputs.length == 4
    assert [chunk.type for chunk in inputs.chunks] == ["encoded_text", "image", "encoded_text"]
    assert targets == [0, 0, 8, 9]


def test_a_last_chunk_of_one_token_leaves_no_empty_chunk_behind():
    inputs, targets = create_rightshifted_model_input_and_leftshifted_targets([text(1, 2), text(3)])
    assert [list(chunk.tokens) for chunk in inputs.chunks] == [[1, 2]]  # pyright: ignore
    assert targets == [2, 3]


@pytest.mark.parametrize(("tokens", "max_length"), [([], None), ([1], None), ([1, 2, 3], 1)])
def test_fewer_than_two_tokens_are_refused(tokens: list[int], max_length: int | None):
    example = model_input(text(*tokens)) if tokens else model_input()
    with pytest.raises(DataValidationError, match="needs 2 or more"):
        datum_from_model_input_weights(example, [1] * len(tokens), max_length)


def test_an_example_that_ends_in_an_image_is_refused_by_the_shift():
    with pytest.raises(DataValidationError, match="ends in a chunk of type 'image'"):
        create_rightshifted_model_input_and_leftshifted_targets([text(1), image(2)])


def test_one_weight_too_few_is_refused():
    with pytest.raises(DataValidationError, match=r"shape \[2\], but model_input has 3 tokens"):
        datum_from_model_input_weights(model_input(text(1, 2, 3)), [1, 1])


def test_an_unknown_reduction_is_refused_by_its_name():
    with pytest.raises(DataValidationError, match="reduction='sum'"):
        datum_from_model_input_weights(
            model_input(text(1, 2)),
            [1, 1],
            reduction="sum",  # pyright: ignore[reportArgumentType]
        )


def test_mean_nll_is_weighted_over_all_examples_together():
    # (1 * 0.5 + 2 * 1.0 + 1 * 3.0) / 4
    nll = compute_mean_nll([[-0.5, -9.0, -1.0], np.array([-3.0])], [[1, 0, 2], torch.tensor([1.0])])
    assert nll == pytest.approx(5.5 / 4)


def test_mean_nll_reads_what_a_service_answers():
    data = types.TensorData(data=[-1.0, -2.0], dtype="float32", shape=[2])
    ones = types.TensorData(data=[1.0, 1.0], dtype="float32", shape=[2])
    assert compute_mean_nll([data], [ones]) == pytest.approx(1.5)


def test_mean_nll_without_weights_is_no_number():
    assert math.isnan(compute_mean_nll([[-1.0]], [[0.0]]))
    assert math.isnan(compute_mean_nll([], []))


class Letters:
    """Token 0 ends; token n is a letter, except 200: a letter of two bytes."""

    eos_token_id = 0

    def decode(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))


def test_bits_per_byte_by_hand():
    # a (1 byte) and é (2 bytes) count; the second "a" has weight 0; the end token is no text.
    # Weight 5 selects, it does not multiply.
    bpb = compute_bpb(
        [[-math.log(2), -7.0, -2 * math.log(2), -9.0]],
        [[5, 0, 1, 1]],
        [[97, 97, 233, 0]],
        Letters(),
    )
    assert bpb == pytest.approx(3 / 3)


def test_bits_per_byte_leaves_out_every_special_token_the_tokenizer_lists():
    class Listed(Letters):
        all_special_ids = (0, 98)

    bpb = compute_bpb([[-math.log(2), -5.0]], [[1, 1]], [[97, 98]], Listed())
    assert bpb == pytest.approx(1.0)


def test_bits_per_byte_of_no_bytes_is_no_number():
    assert math.isnan(compute_bpb([[-1.0]], [[1.0]], [[0]], Letters()))
