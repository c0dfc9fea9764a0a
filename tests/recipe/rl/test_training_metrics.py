"""Drift and entropy, over sampled tokens only."""

import numpy as np
import pytest
from tests.recipe.rl.episodes import episode, turn

from mint.recipe.exceptions import DataValidationError
from mint.recipe.rl.data_processing import trajectory_to_data, without_mask
from mint.recipe.rl.training_metrics import compute_kl_sample_train


def data():
    first = episode(turn([1, 2], [3, 4], logprobs=[-1.0, -2.0]))
    second = episode(turn([1], [5], logprobs=[-3.0]))
    return trajectory_to_data(first, 1.0) + trajectory_to_data(second, -1.0)


def test_drift_and_entropy_of_three_tokens():
    # s - p = 0.5, -0.25, 0; what stands at prompt positions does not count
    told = compute_kl_sample_train(data(), [[9.0, -1.5, -1.75], [-3.0]])

    assert told == {
        "optim/kl_sample_train_v1": pytest.approx(0.25 / 3),
        "optim/kl_sample_train_v2": pytest.approx(0.5 * (0.25 + 0.0625) / 3),
        "optim/entropy": pytest.approx(2.0),
    }


def test_tensors_and_arrays_are_taken_alike():
    import torch

    lists = [[9.0, -1.5, -1.75], [-3.0]]

    assert (
        compute_kl_sample_train(data(), [torch.tensor(one) for one in lists])
        == compute_kl_sample_train(data(), [np.array(one) for one in lists])
        == compute_kl_sample_train(data(), lists)
    )


def test_where_nothing_was_sampled_there_is_nothing_to_tell():
    masked = trajectory_to_data(episode(turn([1], [2], parse_error_masked=1.0)), 1.0)

    assert compute_kl_sample_train([], []) == {}
    assert compute_kl_sample_train(masked, [[-1.0]]) == {}


def test_values_that_do_not_fit_their_datum_are_refused():
    with pytest.raises(DataValidationError, match="datum 1 has 1 targets, but values of shape"):
        compute_kl_sample_train(data(), [[0.0, 0.0, 0.0], [0.0, 0.0]])
    with pytest.raises(DataValidationError, match="2 datums, but values of 1"):
        compute_kl_sample_train(data(), [[0.0, 0.0, 0.0]])


def test_data_without_its_mask_is_refused_with_the_reason():
    with pytest.raises(DataValidationError, match=r"no 'mask' among .* before without_mask"):
        compute_kl_sample_train([without_mask(data()[1])], [[0.0]])
