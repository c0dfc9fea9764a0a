"""From weighted tokens to training datums, and the scores of what was learnt.

Letters that end a name: T tokens of one example, N examples.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tinker import types

from mint.recipe.exceptions import DataValidationError
from mint.recipe.text_encoder import special_ids

Reduction: TypeAlias = Literal["none", "mean"]
Chunk: TypeAlias = types.ModelInputChunk


def datum_from_model_input_weights(
    model_input: types.ModelInput,
    weights: Any,
    max_length: int | None = None,
    reduction: Reduction = "none",
) -> types.Datum:
    """One example for the loss `cross_entropy`: cut, shifted, weighted.

    Args:
        model_input: the whole example, its last token included.
        weights: `[T]`, what each token counts for as a target; tensor, array or list.
        max_length: keep at most that many tokens, cutting from the right. A text chunk may be cut;
            an image goes whole, and so does one that would be left at the end.
        reduction: "mean" divides the weights that remain by their sum, so that each example weighs
            the same however long its answer is; weights that sum to 0 stay as they are.

    Returns:
        A datum with `target_tokens` int64 and `weights` float32, both `[T - 1]` after the cut.

    Raises:
        DataValidationError: there is not one weight per token, fewer than two tokens are left, or
            reduction is unknown.
    """
    if reduction not in ("none", "mean"):
        raise DataValidationError(f'reduction={reduction!r}: "none" or "mean".')
    weights_T = as_array(weights).astype(np.float32)
    if weights_T.shape != (model_input.length,):
        raise DataValidationError(
            f"weights has shape {list(weights_T.shape)}, but model_input has {model_input.length} "
            "tokens. Give one weight per token; 0.0 where nothing is to be learnt."
        )
    chunks = _cut(model_input.chunks, max_length)
    inputs, targets = create_rightshifted_model_input_and_leftshifted_targets(chunks)
    weights_T = weights_T[1 : len(targets) + 1]
    total = weights_T.sum(dtype=np.float64)
    if reduction == "mean" and total > 0:
        weights_T = (weights_T / total).astype(np.float32)
    return types.Datum(
        model_input=inputs,
        loss_fn_inputs={
            "target_tokens": types.TensorData.from_numpy(np.asarray(targets, dtype=np.int64)),
            "weights": types.TensorData.from_numpy(np.ascontiguousarray(weights_T)),
        },
    )


def create_rightshifted_model_input_and_leftshifted_targets(
    chunks: Sequence[Chunk],
) -> tuple[types.ModelInput, list[int]]:
    """What the model reads (all but the last token), and what each position is to predict.

    An image cannot be predicted; where one is the next element the target is 0, and its weight
    ought to be 0 as well.

    Raises:
        DataValidationError: fewer than two tokens, or the last element is no text.
    """
    length = sum(chunk.length for chunk in chunks)
    if length < 2:
        raise DataValidationError(
            f"an example of {length} token(s) has nothing to predict: it needs 2 or more."
        )
    *before, last = chunks
    if not isinstance(last, types.EncodedTextChunk):
        raise DataValidationError(
            f"the example ends in a chunk of type {last.type!r}; the last element has to be text, "
            "since it is what the model learns to predict."
        )
    if last.length > 1:
        before.append(types.EncodedTextChunk(tokens=last.tokens[:-1]))
    targets = [token for chunk in chunks for token in _as_targets(chunk)]
    return types.ModelInput(chunks=before), targets[1:]


def compute_mean_nll(logprobs_list: Sequence[Any], weights_list: Sequence[Any]) -> float:
    """Mean negative log-likelihood, in nats per unit of weight, over all examples.

        nll = - sum(w_t * logp_t) / sum(w_t)

    nan if all weights are 0. Each example is a tensor, an array, a list or a TensorData.
    """
    weighted, total = 0.0, 0.0
    for logprobs, weights in zip(logprobs_list, weights_list, strict=True):
        weights_T = as_array(weights).astype(np.float64)
        weighted += float(as_array(logprobs).astype(np.float64) @ weights_T)
        total += float(weights_T.sum())
    return -weighted / total if total else math.nan


def compute_bpb(
    logprobs_list: Sequence[Any],
    weights_list: Sequence[Any],
    target_tokens_list: Sequence[Any],
    tokenizer: Any,
) -> float:
    """Bits that the model needs per byte of text: comparable across tokenizers.

        bpb = - sum(logp_t) / (ln 2 * bytes)

    over the tokens with a weight above 0 that are no special tokens. Weights select here, they do
    not multiply. `bytes` counts the UTF-8 bytes of those tokens' text. nan if there are none.
    """
    special = special_ids(tokenizer)
    nats, size_bytes = 0.0, 0
    for logprobs, weights, targets in zip(
        logprobs_list, weights_list, target_tokens_list, strict=True
    ):
        tokens_T = as_array(targets).astype(np.int64)
        counts_T = (as_array(weights) > 0) & ~np.isin(tokens_T, special)
        nats -= float(as_array(logprobs).astype(np.float64)[counts_T].sum())
        size_bytes += len(tokenizer.decode(tokens_T[counts_T].tolist()).encode())
    return nats / (math.log(2) * size_bytes) if size_bytes else math.nan


def as_array(values: Any) -> NDArray[Any]:
    """A tensor, an array, a list or a TensorData as an array; needs no torch."""
    return values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)


def _cut(chunks: Sequence[Chunk], max_length: int | None) -> list[Chunk]:
    kept: list[Chunk] = []
    room = math.inf if max_length is None else max_length
    for chunk in chunks:
        if chunk.length > room:
            if isinstance(chunk, types.EncodedTextChunk) and room > 0:
                kept.append(types.EncodedTextChunk(tokens=chunk.tokens[: int(room)]))
            break  # whatever follows is further right
        kept.append(chunk)
        room -= chunk.length
    while kept and not isinstance(kept[-1], types.EncodedTextChunk):
        kept.pop()
    return kept


def _as_targets(chunk: Chunk) -> Sequence[int]:
    return chunk.tokens if isinstance(chunk, types.EncodedTextChunk) else [0] * chunk.length
