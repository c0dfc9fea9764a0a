"""Conversations as examples, counted by hand: in this tokenizer a byte is a token."""

import numpy as np
import pytest
import torch
from tests.recipe.renderers.conversations import assistant, user
from tests.recipe.tokens import ID, ByteTokenizer

from mint.recipe.renderers.base import TrainOnWhat
from mint.recipe.renderers.qwen3 import Qwen3InstructRenderer
from mint.recipe.supervised import conversation_to_datum

TOKENIZER = ByteTokenizer()
RENDERER = Qwen3InstructRenderer(TOKENIZER)
CONVERSATION = [user("u"), assistant("ab"), user("v"), assistant("c")]
END = ID["<|im_end|>"]


def test_the_trained_targets_are_the_answers_and_their_ends():
    datum = conversation_to_datum(CONVERSATION, RENDERER, max_length=None, reduction="none")
    targets = datum.loss_fn_inputs["target_tokens"].to_numpy()
    weights = datum.loss_fn_inputs["weights"].to_numpy()

    assert targets[weights > 0].tolist() == [ord("a"), ord("b"), END, ord("c"), END]
    assert set(weights.tolist()) == {0.0, 1.0}


def test_by_default_each_conversation_weighs_one():
    weights = conversation_to_datum(CONVERSATION, RENDERER, max_length=None).loss_fn_inputs[
        "weights"
    ]
    assert weights.to_numpy().sum() == pytest.approx(1.0)
    assert weights.to_numpy().max() == pytest.approx(1 / 5)


def test_only_the_last_answer_may_be_trained():
    datum = conversation_to_datum(
        CONVERSATION, RENDERER, None, TrainOnWhat.LAST_ASSISTANT_MESSAGE, "none"
    )
    assert datum.loss_fn_inputs["weights"].to_numpy().tolist()[-2:] == [1.0, 1.0]
    assert datum.loss_fn_inputs["weights"].to_numpy().sum() == 2.0


def test_a_long_conversation_is_cut_from_the_right():
    datum = conversation_to_datum(CONVERSATION, RENDERER, max_length=10, reduction="none")
    whole = conversation_to_datum(CONVERSATION, RENDERER, max_length=None)
    assert datum.model_input.to_ints() == whole.model_input.to_ints()[:9]


def test_a_renderer_with_examples_of_its_own_is_asked_for_them():
    class Halved(Qwen3InstructRenderer):
        def build_supervised_example(self, messages, train_on_what=TrainOnWhat.ALL_MESSAGES):
            example, weights = self.weighted_example(messages, train_on_what)
            return example, torch.from_numpy(weights / 2)

    datum = conversation_to_datum(CONVERSATION, Halved(TOKENIZER), None, reduction="none")
    assert np.unique(datum.loss_fn_inputs["weights"].to_numpy()).tolist() == [0.0, 0.5]
