"""From conversations to training datums."""

from collections.abc import Sequence
from typing import Any

from tinker import types

from mint.recipe.messages import Message
from mint.recipe.renderers.base import Renderer, TrainOnWhat
from mint.recipe.supervised.common import Reduction, datum_from_model_input_weights


def conversation_to_datum(
    conversation: Sequence[Message],
    renderer: Renderer,
    max_length: int | None,
    train_on_what: TrainOnWhat | str = TrainOnWhat.ALL_ASSISTANT_MESSAGES,
    reduction: Reduction = "mean",
) -> types.Datum:
    """One conversation as one example for the loss `cross_entropy`.

    Args:
        max_length: keep at most that many tokens, cutting from the right; None keeps all.
        train_on_what: whose words are learnt.
        reduction: "mean" lets each conversation weigh the same; "none" each token.

    Raises:
        RendererError: the renderer cannot write this conversation.
        DataValidationError: fewer than two tokens are left.
    """
    model_input, weights_T = _weighted(renderer, conversation, train_on_what)
    return datum_from_model_input_weights(model_input, weights_T, max_length, reduction)


def _weighted(
    renderer: Renderer, conversation: Sequence[Message], train_on_what: TrainOnWhat | str
) -> tuple[types.ModelInput, Any]:
    ours = Renderer.build_supervised_example
    if getattr(type(renderer), "build_supervised_example", None) is ours:
        return renderer.weighted_example(conversation, train_on_what)  # the same without torch
    return renderer.build_supervised_example(conversation, train_on_what)
