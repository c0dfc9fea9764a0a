"""Operations of MinT's own, on upstream's clients or ours: forward_backward_reverse_kl and
interpolate_checkpoints, each with an async twin of the same arguments."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tinker
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from tinker import types

from mint.client.compat import submit, submit_passes
from mint.core.errors import LossInputError, UserError

Numbers = types.TensorData | NDArray[Any] | Sequence[int] | Sequence[float]

CHUNK_NUMBERS = 500_000
"""Of one request: about 5 MB of JSON, of the 32 MiB that a server takes."""
CHUNK_DATUMS = 1024


@dataclass(frozen=True)
class ReverseKLDatum:
    """One continuation, as the student and as the reference reads it.

    Both inputs are prompt + target_tokens[:-1], so that the last n positions of either predict
    `target_tokens` `[n]`; the prompts may differ, as when the reference is told more.
    """

    student_input: types.ModelInput
    reference_input: types.ModelInput
    target_tokens: Numbers
    weights: Numbers | None = None
    """`[n]`, of any sign; None: ones."""

    def to_json(self, where: str = "datum") -> dict[str, Any]:
        """What is sent of it.

        Args:
            where: what errors call it.

        Raises:
            LossInputError: target_tokens are not integers, or a weight is not finite.
        """
        targets = _integers(self.target_tokens, f"{where}.target_tokens")
        weights = np.ones(targets.shape) if self.weights is None else self.weights
        return {
            "student_input": self.student_input.model_dump(mode="json"),
            "reference_input": self.reference_input.model_dump(mode="json"),
            "target_tokens": _tensor(targets, "int64"),
            "weights": _tensor(_finite(weights, f"{where}.weights"), "float32"),
        }

    @property
    def numbers(self) -> int:
        """How many it has to send."""
        return (
            self.student_input.length + self.reference_input.length
            + 2 * len(np.asarray(_array(self.target_tokens)))
        )  # fmt: skip


class InterpolatedCheckpoint(BaseModel):
    """Where a sum of checkpoints lies, and the rank it has."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    path: str
    rank: int
    checkpoint_type: str = "sampler"


def forward_backward_reverse_kl(
    training_client: tinker.TrainingClient,
    *,
    reference_model_path: str,
    data: Sequence[ReverseKLDatum],
    temperature: float = 1.0,
) -> tinker.APIFuture[types.ForwardBackwardOutput]:
    """Add the gradient of a reverse KL to what the model has gathered, as forward_backward does.

        L = sum over data and positions of weight * KL(student || reference)

    over the whole vocabulary, both models' logits divided by `temperature`; there is no factor
    temperature^2. No logits leave the server.

    Args:
        reference_model_path: a checkpoint (tinker://, mint://, one's own or a public one) or a
            base model's name. It has to share the student's vocabulary.

    Returns:
        A future. loss_fn_outputs hold per datum `reverse_kl` and `logprobs` (the student's, of the
        targets), both `[n]` in nats; metrics are `loss:sum`, and over positions with weight
        `reverse_kl:sum`, `reverse_kl:mean`, `active_tokens:sum`.

    Raises:
        UserError: there is no data, targets are not integers, or a number is not finite; nothing is
            sent then. All else that is wrong is told by the future.
    """
    if not data:
        raise UserError("data is empty. Give at least one ReverseKLDatum.")
    if not math.isfinite(temperature):
        raise UserError(f"temperature={temperature}: give a finite number.")
    common = {"reference_model_path": reference_model_path, "temperature": temperature}
    bodies = [
        {**common, "data": [datum.to_json(f"data[{i}]") for i, datum in chunk]}
        for chunk in _chunks(data)
    ]
    route = "/api/v1/mint/forward_backward_reverse_kl"
    return submit_passes(training_client, route, bodies, _with_exact_mean)


async def forward_backward_reverse_kl_async(
    training_client: tinker.TrainingClient,
    *,
    reference_model_path: str,
    data: Sequence[ReverseKLDatum],
    temperature: float = 1.0,
) -> tinker.APIFuture[types.ForwardBackwardOutput]:
    """forward_backward_reverse_kl for upstream's older spelling: await it, then its future."""
    return forward_backward_reverse_kl(
        training_client, reference_model_path=reference_model_path, data=data,
        temperature=temperature,
    )  # fmt: skip


def interpolate_checkpoints(
    service_client: tinker.ServiceClient,
    *,
    source_paths: Sequence[str],
    coefficients: Sequence[float],
    output_path: str | None = None,
) -> tinker.APIFuture[InterpolatedCheckpoint]:
    """Write the weighted sum of checkpoints of one base model as a checkpoint for sampling.

    What each adds to the base model's weights is summed, c_1 dW_1 + c_2 dW_2 + …, exactly, whatever
    ranks, alphas and linears they have: factors are concatenated (the rank is the sum of ranks), or
    brought to the sum's true rank where that would exceed what a weight can have.

    Args:
        coefficients: any finite numbers, one for each path.
        output_path: the new checkpoint's name, one segment; its run is one of its own. None:
            "interpolated".

    Raises:
        UserError: a coefficient is not finite; nothing is sent then. All else that is wrong is told
            by the future.
    """
    for i, coefficient in enumerate(coefficients):
        if not math.isfinite(coefficient):
            raise UserError(f"coefficients[{i}]={coefficient}: give a finite number.")
    body = {"source_paths": list(source_paths), "coefficients": [float(c) for c in coefficients]}
    if output_path is not None:
        body["output_path"] = output_path
    route = "/api/v1/mint/checkpoints/interpolate"
    return submit(service_client, route, body, InterpolatedCheckpoint)


async def interpolate_checkpoints_async(
    service_client: tinker.ServiceClient,
    *,
    source_paths: Sequence[str],
    coefficients: Sequence[float],
    output_path: str | None = None,
) -> tinker.APIFuture[InterpolatedCheckpoint]:
    """interpolate_checkpoints for upstream's older spelling: await it, then its future."""
    return interpolate_checkpoints(
        service_client, source_paths=source_paths, coefficients=coefficients,
        output_path=output_path,
    )  # fmt: skip


def _chunks(data: Sequence[ReverseKLDatum]) -> Iterator[list[tuple[int, ReverseKLDatum]]]:
    """What one request takes of the data, each datum with its number."""
    chunk: list[tuple[int, ReverseKLDatum]] = []
    numbers = 0
    for i, datum in enumerate(data):
        if chunk and (numbers + datum.numbers > CHUNK_NUMBERS or len(chunk) == CHUNK_DATUMS):
            yield chunk
            chunk, numbers = [], 0
        chunk.append((i, datum))
        numbers += datum.numbers
    yield chunk


def _with_exact_mean(result: types.ForwardBackwardOutput) -> types.ForwardBackwardOutput:
    """Upstream weighs a mean by the chunks' datums; this one is over positions."""
    metrics = result.metrics
    count = metrics["active_tokens:sum"]
    metrics["reverse_kl:mean"] = metrics["reverse_kl:sum"] / count if count else 0.0
    return result


def _array(values: Numbers) -> NDArray[Any]:
    return values.to_numpy() if isinstance(values, types.TensorData) else np.asarray(values)


def _integers(values: Numbers, where: str) -> NDArray[Any]:
    array = _array(values)
    if array.size and array.dtype.kind not in "iu":
        raise LossInputError(f"{where} is {array.dtype}; it must hold token ids, as integers.")
    return array


def _finite(values: Numbers, where: str) -> NDArray[Any]:
    array = _array(values)
    if array.dtype.kind not in "biuf":
        raise LossInputError(f"{where} is {array.dtype}; it must hold numbers.")
    with np.errstate(over="ignore"):  # what float32 cannot hold is told below
        bad = np.flatnonzero(~np.isfinite(array.astype(np.float32)))
    if bad.size:
        raise LossInputError(
            f"{where}[{bad[0]}] is {array.reshape(-1)[bad[0]]}; every value must be finite in float32."
        )
    return array


def _tensor(array: NDArray[Any], dtype: str) -> dict[str, Any]:
    return {
        "data": array.astype(dtype).reshape(-1).tolist(),
        "dtype": dtype,
        "shape": list(array.shape),
    }
