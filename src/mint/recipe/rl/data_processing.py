"""From episodes to training data.

Letters: `P` groups of a batch, `G` members of a group, `D` datums, `T` positions of a datum.

A datum holds, per target, the logprob it was sampled with, its advantage, and whether it was sampled
at all (`mask`). The mask is ours: it says what metrics and the KL penalty run over, and leaves the
datum before it is sent.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from tinker import types

from mint.recipe.exceptions import DataValidationError
from mint.recipe.rl.advantages import advantages_of as advantages_of
from mint.recipe.rl.advantages import compute_advantages as compute_advantages
from mint.recipe.rl.advantages import (
    remove_constant_reward_groups as remove_constant_reward_groups,
)
from mint.recipe.rl.prefix_merge import MergedSequence, merge_turns
from mint.recipe.rl.provenance import with_provenance
from mint.recipe.rl.types import Trajectory, TrajectoryGroup


class DatumOrigin(TypedDict):
    """Whose datum it is."""

    group_idx: int
    traj_idx: int


def trajectory_to_data(
    traj: Trajectory, traj_advantage: float, include_provenance: bool = True
) -> list[types.Datum]:
    """One datum per stretch of turns that continue each other; usually one per episode.

    Args:
        traj_advantage: credit of every sampled token of the episode; a number, or a tensor of one.
        include_provenance: say of each position which sampling request it came from, where the SDK
            can say so and every action has its request's name.

    Returns:
        Datums with `target_tokens` int64 and `logprobs`, `advantages`, `mask` float32, all `[T]`. On
        sampled targets the sampled logprob, the advantage and 1, elsewhere 0. A turn that is masked
        for its parse error has mask and advantage 0 too. A stretch of fewer than two tokens, such as
        an episode that ended before its first token, gives none.

    Raises:
        DataValidationError: an action has not one logprob per token.
    """
    return _data_of(traj, float(traj_advantage), include_provenance, _TokenArrays())


def assemble_training_data(
    trajectory_groups_P: Sequence[TrajectoryGroup],
    advantages_P: Sequence[Any],
    include_provenance: bool = True,
) -> tuple[list[types.Datum], list[DatumOrigin]]:
    """The datums of all groups, in order of group and member, and whose each is.

    Args:
        advantages_P: per group `[G]`; arrays, tensors or lists.

    Raises:
        DataValidationError: there is not one advantage per member.
    """
    data_D: list[types.Datum] = []
    origins_D: list[DatumOrigin] = []
    _same_length("groups", len(trajectory_groups_P), "arrays of advantages", len(advantages_P))
    for p, (group, advantages_G) in enumerate(zip(trajectory_groups_P, advantages_P, strict=True)):
        members, arrays = group.trajectories_G, _TokenArrays()
        _same_length(f"members in group {p}", len(members), "advantages", len(advantages_G))
        for g, trajectory in enumerate(members):
            data = _data_of(trajectory, float(advantages_G[g]), include_provenance, arrays)
            data_D += data
            origins_D += [DatumOrigin(group_idx=p, traj_idx=g)] * len(data)
    return data_D, origins_D


def split_substeps(data_D: Sequence[types.Datum], num_substeps: int) -> list[Sequence[types.Datum]]:
    """The data of each optimizer step of a batch: contiguous, and of sizes that differ by one at most.

    As many parts as there are datums, if there are fewer of those. Parts one after the other are the
    data again, so results strung together in the parts' order are in the data's order.
    """
    count = min(num_substeps, len(data_D))
    bounds = [len(data_D) * part // count for part in range(count + 1)] if count else []
    return [data_D[a:b] for a, b in itertools.pairwise(bounds)]


def training_logprobs(
    outputs: Iterable[types.ForwardBackwardOutput],
) -> list[NDArray[np.float32]]:
    """Logprobs of the targets under the weights in training, per datum `[T]`, in the datums' order.

    Args:
        outputs: answers of forward_backward, in the order their data was submitted.
    """
    return [
        output["logprobs"].to_numpy() for answer in outputs for output in answer.loss_fn_outputs
    ]


def without_mask(datum: types.Datum) -> types.Datum:
    """The datum as it is sent: losses know no `mask`."""
    inputs = {name: value for name, value in datum.loss_fn_inputs.items() if name != "mask"}
    sent = types.Datum(model_input=datum.model_input, loss_fn_inputs=inputs)
    spans = getattr(datum, "model_input_spans", None)
    if spans is None:
        return sent
    return sent.with_provenance(model_input=spans, loss_fn_inputs=datum.loss_fn_input_spans or [])


def array_of(datum: types.Datum, name: str) -> NDArray[Any]:
    """One of a datum's tensors as an array `[T]`.

    Raises:
        DataValidationError: the datum has no such tensor.
    """
    try:
        return datum.loss_fn_inputs[name].to_numpy()
    except KeyError:
        raise DataValidationError(
            f"a datum has no {name!r} among its loss_fn_inputs, only "
            f"{', '.join(datum.loss_fn_inputs) or 'nothing'}. Data of assemble_training_data has it; "
            "take metrics before without_mask."
        ) from None


class _TokenArrays:
    """Chunks as arrays, each made once: the members of a group show the same prompt."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[types.ModelInputChunk, NDArray[np.int64]]] = {}
        """By the chunk's id, which is its own as long as it is held here."""

    def of(self, chunk: types.ModelInputChunk) -> NDArray[np.int64]:
        """What is at its positions `[T]`: tokens, or 0 where no token stands."""
        if id(chunk) not in self._made:
            self._made[id(chunk)] = chunk, _positions(chunk)
        return self._made[id(chunk)][1]


def _positions(chunk: types.ModelInputChunk) -> NDArray[np.int64]:
    if isinstance(chunk, types.EncodedTextChunk):
        return np.array(chunk.tokens, dtype=np.int64)
    return np.zeros(chunk.length, dtype=np.int64)


def _data_of(
    trajectory: Trajectory, advantage: float, include_provenance: bool, arrays: _TokenArrays
) -> list[types.Datum]:
    data = (
        _datum(sequence, advantage, include_provenance, arrays)
        for sequence in merge_turns(trajectory)
    )
    return [datum for datum in data if datum is not None]


def _datum(
    sequence: MergedSequence, advantage: float, include_provenance: bool, arrays: _TokenArrays
) -> types.Datum | None:
    sequence.drop_opaque_end()
    if sequence.length < 2:
        return None
    logprobs_T, advantages_T, mask_T = np.zeros((3, sequence.length - 1), dtype=np.float32)
    for turn in sequence.turns:
        logprobs = turn.action.logprobs
        _same_length("tokens of an action", len(turn.action.tokens), "logprobs", len(logprobs))
        start = max(turn.start, 1)  # the very first token is no target: nothing precedes it
        targets = slice(start - 1, max(turn.stop, 1) - 1)
        logprobs_T[targets] = logprobs[start - turn.start :]
        if turn.is_trained:
            advantages_T[targets] = advantage
            mask_T[targets] = 1.0
    action_T = np.array(sequence.action, dtype=np.int64)
    targets_T = np.concatenate([*map(arrays.of, sequence.chunks), action_T])[1:]
    datum = types.Datum(
        model_input=_without_last(sequence),
        loss_fn_inputs={
            "target_tokens": types.TensorData.from_numpy(targets_T),
            "logprobs": types.TensorData.from_numpy(logprobs_T),
            "advantages": types.TensorData.from_numpy(advantages_T),
            "mask": types.TensorData.from_numpy(mask_T),
        },
    )
    return with_provenance(datum, sequence) if include_provenance else datum


def _without_last(sequence: MergedSequence) -> types.ModelInput:
    """All but the last token: the prompt's chunks as they are, then the action."""
    *shown, last = *sequence.chunks, types.EncodedTextChunk(tokens=sequence.action)
    while not last.length:  # nothing was sampled
        last = shown.pop()
    assert isinstance(last, types.EncodedTextChunk)  # drop_opaque_end
    rest = [types.EncodedTextChunk(tokens=last.tokens[:-1])] if last.length > 1 else []
    return types.ModelInput(chunks=[*shown, *rest])


def _same_length(one: str, length: int, other: str, other_length: int) -> None:
    if length != other_length:
        raise DataValidationError(
            f"there are {length} {one}, but {other_length} {other}. There has to be one for each."
        )
