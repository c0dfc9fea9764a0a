"""The table of losses: inputs, config keys, defaults, equation, source. Written here only.

Every loss is a plain sum over positions and datums, never a mean: callers weigh tokens through
`weights` or `advantages`, and two half batches must give the gradient of the whole one.

Letters: p = logprob of the target under the weights in training, at `temperature`;
q = `logprobs` as sampled; A = `advantages`; w = `weights`; r = exp(p - q); sg = no gradient.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from mint.core.datum import Datum
from mint.core.errors import LossInputError, UnsupportedError


@dataclass(frozen=True)
class LossInput:
    """One tensor a datum carries for its loss, one value per input token."""

    name: str
    kind: str
    """"f" float32 or "i" int64."""
    required: bool = True


@dataclass(frozen=True)
class ConfigKey:
    """One number of `loss_fn_config`."""

    default: float
    lowest: float = 0.0
    positive: bool = False
    """Refuse `lowest` itself."""
    as_tensor: bool = False
    """May also come per token, as a tensor of this name in `loss_fn_inputs`."""


@dataclass(frozen=True)
class LossSpec:
    """One row of the table."""

    name: str
    inputs: tuple[LossInput, ...]
    config: Mapping[str, ConfigKey]
    equation: str
    source: str
    soft_targets: bool = False
    """Accepts `target_tokens` of shape `[n, k]` with `weights` of the same shape."""
    refused_inputs: tuple[str, ...] = ()
    """Tensors that would change the result in a way nobody has published."""


TEMPERATURE = ConfigKey(default=1.0, positive=True)
"""Our extension, on every loss: the temperature the data was sampled at. p is then taken from
softmax(logits / temperature), so that ratios are exact for temperature != 1."""

_TARGETS = LossInput("target_tokens", "i")
_POLICY = (_TARGETS, LossInput("logprobs", "f"), LossInput("advantages", "f"))


def _clip(low: float, high: float) -> dict[str, ConfigKey]:
    return {
        "clip_low_threshold": ConfigKey(low, as_tensor=True),
        "clip_high_threshold": ConfigKey(high, as_tensor=True),
    }


def _row(name: str, inputs: tuple[LossInput, ...], config: dict[str, ConfigKey], equation: str,
         source: str, soft_targets: bool = False,
         refused_inputs: tuple[str, ...] = ()) -> LossSpec:  # fmt: skip
    keys = MappingProxyType({**config, "temperature": TEMPERATURE})
    return LossSpec(name, inputs, keys, equation, source, soft_targets, refused_inputs)


LOSSES: Mapping[str, LossSpec] = MappingProxyType({
    spec.name: spec
    for spec in (
        _row(
            "cross_entropy", (_TARGETS, LossInput("weights", "f", required=False)), {},
            "-w * p, summed over the k targets of a position where there are several",
            "maximum likelihood; w may be negative (custom losses come in this way)",
            soft_targets=True,
        ),
        _row(
            "importance_sampling", _POLICY, {}, "-r * A",
            "policy gradient with an importance ratio (Williams 1992; Schulman et al. 2017, eq. 6)",
        ),
        _row(
            "ppo", _POLICY, _clip(0.8, 1.2), "-min(r * A, clip(r, low, high) * A)",
            "Schulman et al. 2017, arXiv:1707.06347, eq. 7",
        ),
        _row(
            "cispo", _POLICY, _clip(0.0, 4.0), "-sg(clip(r, low, high)) * A * p",
            "MiniMax 2025, arXiv:2506.13585, eq. 4",
        ),
        _row(
            "dro", _POLICY, {"beta": ConfigKey(0.01)},
            "-(p * A - beta / 2 * (p - q)^2)",
            "Richemond et al. 2024, arXiv:2405.19107, eq. 6, per token",
        ),
        _row(
            "gspo", _POLICY, _clip(1 - 3e-4, 1 + 4e-4),
            "-min(s * A, clip(s, low, high) * A), s = sg(exp(mean(p - q))) * exp(p - sg(p)); "
            "the mean runs over the datum's tokens with A != 0",
            "Zheng et al. 2025, arXiv:2507.18071, eq. 13-14 (the token form), summed over tokens; "
            "clipping as in its section 5.1",
            refused_inputs=("sequence_ratio_mask",),
        ),
    )
})  # fmt: skip

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "stable_reinforce": "its semantics have not been published, so a result could not be checked",
        "custom": "custom losses are computed in the client here: call forward_backward_custom() and "
        "leave the server's custom_loss_server_side flag off",
    }
)
"""Names that clients know and we do not offer, each with the reason."""


@dataclass(frozen=True)
class Loss:
    """A loss with all its numbers filled in."""

    spec: LossSpec
    config: Mapping[str, float] = field(default_factory=dict)

    @property
    def temperature(self) -> float:
        return self.config["temperature"]


def resolve(name: str, config: Mapping[str, float | str] | None = None) -> Loss:
    """Look a loss up and fill in the defaults of its config.

    Raises:
        UnsupportedError: the loss is known but not offered.
        LossInputError: unknown loss or config key, or a value out of range.
    """
    if name in REFUSED:
        raise UnsupportedError(f"loss_fn {name!r} is not supported: {REFUSED[name]}.")
    if name not in LOSSES:
        raise LossInputError(f"loss_fn {name!r} is unknown. Known: {', '.join(LOSSES)}.")
    spec = LOSSES[name]
    values = {key: entry.default for key, entry in spec.config.items()}
    for key, value in (config or {}).items():
        if key not in spec.config:
            raise LossInputError(
                f"loss_fn_config[{key!r}] is unknown for {name!r}. Known: {', '.join(spec.config)}."
            )
        entry = spec.config[key]
        if isinstance(value, str) or not math.isfinite(value):
            raise LossInputError(f"loss_fn_config[{key!r}]={value!r}: give a finite number.")
        if value < entry.lowest or (entry.positive and value <= entry.lowest):
            raise LossInputError(
                f"loss_fn_config[{key!r}]={value}: must be "
                f"{'above' if entry.positive else 'at least'} {entry.lowest}."
            )
        values[key] = float(value)
    low, high = values.get("clip_low_threshold"), values.get("clip_high_threshold")
    if low is not None and high is not None and low > high:
        raise LossInputError(
            f"clip_low_threshold={low} is above clip_high_threshold={high}. Both bound the ratio "
            "itself, so epsilon = 0.2 is (0.8, 1.2)."
        )
    return Loss(spec, MappingProxyType(values))


def check(datum: Datum, loss: Loss, index: int) -> None:
    """Refuse a datum that does not fit its loss, naming the datum and the field.

    Tensors a loss does not use are let pass: clients of all generations send more than is needed.

    Raises:
        LossInputError: a tensor is missing, of the wrong kind or length, or not finite.
        UnsupportedError: the input holds something that is not text.
    """
    where = f"data[{index}]"
    length = len(datum.model_input.tokens())
    if length == 0:
        raise LossInputError(f"{where}.model_input is empty. Give at least one token.")
    tensors = datum.loss_fn_inputs
    for name in loss.spec.refused_inputs:
        if name in tensors:
            raise UnsupportedError(
                f"{where}.loss_fn_inputs[{name!r}] is not supported: what it means for "
                f"{loss.spec.name} is not published. Leave it out; a sequence is one datum's "
                "tokens with advantages other than 0."
            )
    wanted = [*loss.spec.inputs] + [
        LossInput(key, "f", required=False)
        for key, entry in loss.spec.config.items()
        if entry.as_tensor
    ]
    targets = tensors.get("target_tokens")
    soft = targets is not None and targets.ndim == 2
    for entry in wanted:
        name = f"{where}.loss_fn_inputs[{entry.name!r}]"
        tensor = tensors.get(entry.name)
        if tensor is None:
            if entry.required or (soft and entry.name == "weights"):
                raise LossInputError(
                    f"{name} is missing; {loss.spec.name} needs "
                    f"{', '.join(e.name for e in loss.spec.inputs if e.required)}"
                    f"{' and weights with several targets per position' if soft else ''}."
                )
            continue
        if entry.kind == "i" and tensor.dtype.kind not in "iu":
            raise LossInputError(f"{name} is {tensor.dtype}; it must hold token ids (int64).")
        if tensor.ndim not in ((1, 2) if loss.spec.soft_targets else (1,)):
            raise LossInputError(
                f"{name} has shape {list(tensor.shape)}; {loss.spec.name} takes "
                f"{'[n] or [n, k]' if loss.spec.soft_targets else '[n]'}."
            )
        if tensor.shape[0] != length:
            raise LossInputError(
                f"{name} has {tensor.shape[0]} values, but its model_input has {length} tokens. "
                "Give one value per token; use 0.0 on prompt tokens."
            )
        if targets is not None and tensor.shape != targets.shape and entry.name == "weights":
            raise LossInputError(
                f"{name} has shape {list(tensor.shape)}, but target_tokens has "
                f"{list(targets.shape)}. Give one weight per target."
            )
        if tensor.dtype.kind == "f":
            bad = np.flatnonzero(~np.isfinite(tensor))
            if bad.size:
                at = int(bad[0])
                raise LossInputError(
                    f"{name}[{at}] is {tensor.reshape(-1)[at]}; every value must be finite."
                )
