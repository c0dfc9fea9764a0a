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
    advantage = float(traj_advantage)
    data = (_datum(sequence, advantage, include_provenance) for sequence in merge_turns(traj))
    return [datum for datum in data if datum is not None]


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
        members = group.trajectories_G
        _same_length(f"members in group {p}", len(members), "advantages", len(advantages_G))
        for g, trajectory in enumerate(members):
            data = trajectory_to_data(trajectory, advantages_G[g], include_provenance)
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


def _datum(
    sequence: MergedSequence, advantage: float, include_provenance: bool
) -> types.Datum | None:
    sequence.drop_opaque_end()
    if sequence.length < 2:
        return None
    logprobs_T, advantages_T, mask_T = (
        np.zeros(sequence.length - 1, dtype=np.float32) for _ in range(3)
    )
    for turn in sequence.turns:
        logprobs = turn.action.logprobs
        _same_length("tokens of an action", len(turn.action.tokens), "logprobs", len(logprobs))
        start = max(turn.start, 1)  # the very first token is no target: nothing precedes it
        targets = slice(start - 1, max(turn.stop, 1) - 1)
        logprobs_T[targets] = logprobs[start - turn.start :]
        if turn.is_trained:
            advantages_T[targets] = advantage
            mask_T[targets] = 1.0
    inputs, targets_T = _shifted(sequence)
    datum = types.Datum(
        model_input=inputs,
        loss_fn_inputs={
            "target_tokens": types.TensorData.from_numpy(targets_T),
            "logprobs": types.TensorData.from_numpy(logprobs_T),
            "advantages": types.TensorData.from_numpy(advantages_T),
            "mask": types.TensorData.from_numpy(mask_T),
        },
    )
    return with_provenance(datum, sequence) if include_provenance else datum


def _shifted(sequence: MergedSequence) -> tuple[types.ModelInput, NDArray[np.int64]]:
    """All but the last token, and all but the first; what no token stands at has target 0."""
    *before, last = sequence.runs()
    assert isinstance(last, list)  # drop_opaque_end
    shown = [*before, last[:-1]] if len(last) > 1 else before
    chunks = [_text(run) if isinstance(run, list) else run for run in shown]
    targets = [
        np.fromiter(run, np.int64, len(run))
        if isinstance(run, list)
        else np.zeros(run.length, dtype=np.int64)
        for run in (*before, last)
    ]
    return types.ModelInput(chunks=chunks), (
        targets[0] if len(targets) == 1 else np.concatenate(targets)
    )[1:]


def _text(tokens: list[int]) -> types.EncodedTextChunk:
    """A chunk of tokens that come from chunks and samples: checking them again, one by one, would
    take longer than all the rest of a datum."""
    return types.EncodedTextChunk.model_construct(tokens=tokens)


def _same_length(one: str, length: int, other: str, other_length: int) -> None:
    if length != other_length:
        raise DataValidationError(
            f"there are {length} {one}, but {other_length} {other}. There has to be one for each."
        )
