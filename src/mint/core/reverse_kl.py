"""check_reverse_kl: whether a reverse KL can be computed. Asked before it is queued and by an engine,
as check_pass is."""

import math
from dataclasses import dataclass

import numpy as np

from mint.core.datum import ReverseKLDatum
from mint.core.errors import LossInputError, UserError
from mint.core.model_input import ModelInput, Tokens, check_tokens
from mint.core.operations import ReverseKL
from mint.core.passes import Reader, check_input

LOWEST_TEMPERATURE = 0.01
"""Logits of 20 are rounded by 2e-6 in float32, logprobs at this temperature by 2e-4 then; far below it
logits / temperature overflows, and the KL is no number."""


@dataclass(frozen=True, eq=False)
class CheckedReverseKL:
    """What was read on the way: the input tokens of each datum, int32, as either model reads them."""

    student_inputs: tuple[Tokens, ...]
    reference_inputs: tuple[Tokens, ...]

    @property
    def tokens(self) -> int:
        """Of all inputs together: the work it asks for."""
        return sum(len(tokens) for tokens in self.student_inputs + self.reference_inputs)


def check_reverse_kl(
    operation: ReverseKL, student: Reader | None, reference: Reader | None
) -> CheckedReverseKL:
    """Refuse a reverse KL that cannot be computed, naming datum and field.

    Args:
        student, reference: the base models; None while one is not known, and then ids and lengths
            are not looked at.

    Raises:
        UserError: the temperature or a datum is wrong, or the models' vocabularies differ in size.
    """
    if not LOWEST_TEMPERATURE <= operation.temperature < math.inf:
        raise LossInputError(
            f"temperature={operation.temperature}: give a finite number of {LOWEST_TEMPERATURE} or "
            "more. Both models' logits are divided by it."
        )
    if not operation.data:
        raise UserError("data is empty. Give at least one datum.")
    if student and reference and student.vocab_size != reference.vocab_size:
        raise UserError(
            f"the reference {operation.reference_base!r} has {reference.vocab_size} token ids, the "
            f"model in training {student.vocab_size}: a KL needs one vocabulary. Choose a "
            "reference of the same family."
        )
    read = [_check(datum, f"data[{i}]") for i, datum in enumerate(operation.data)]
    for i, (datum, (own, others)) in enumerate(zip(operation.data, read, strict=True)):
        _check_ids(datum, own, student, f"data[{i}].student_input")
        _check_ids(datum, others, reference, f"data[{i}].reference_input")
    return CheckedReverseKL(*zip(*read, strict=True))


def _check(datum: ReverseKLDatum, where: str) -> tuple[Tokens, Tokens]:
    """The two inputs, once their ends are found to be the same continuation."""
    targets, weights = datum.target_tokens, datum.weights
    if targets.ndim != 1 or not len(targets):
        raise LossInputError(
            f"{where}.target_tokens has shape {list(targets.shape)}; give one id per position, "
            "[n] with n of 1 or more."
        )
    if targets.dtype.kind not in "iu":
        raise LossInputError(f"{where}.target_tokens is {targets.dtype}; it must hold token ids.")
    if weights.shape != targets.shape:
        raise LossInputError(
            f"{where}.weights has shape {list(weights.shape)}, but target_tokens has "
            f"{list(targets.shape)}. Give one weight per target, or leave weights out for ones."
        )
    bad = np.flatnonzero(~np.isfinite(weights))
    if bad.size:
        raise LossInputError(f"{where}.weights[{bad[0]}] is {weights[bad[0]]}; it must be finite.")
    return (
        _ending_in(datum.student_input, targets, f"{where}.student_input"),
        _ending_in(datum.reference_input, targets, f"{where}.reference_input"),
    )


def _ending_in(model_input: ModelInput, targets: np.ndarray, where: str) -> Tokens:
    """An input's tokens, whose last len(targets) positions have to predict the targets."""
    tokens, n = model_input.tokens(), len(targets)
    if len(tokens) < n:
        raise LossInputError(
            f"{where} has {len(tokens)} tokens, but target_tokens has {n}: each target is predicted "
            "by one position of the input. Put at least one token before the continuation."
        )
    end = tokens[len(tokens) - n + 1 :]
    different = np.flatnonzero(end != targets[:-1])
    if different.size:
        at = int(different[0])
        raise LossInputError(
            f"{where}: token {len(tokens) - n + 1 + at} is {int(end[at])}, but target_tokens[{at}] "
            f"is {int(targets[at])}. An input is prompt + target_tokens[:-1], so that its last {n} "
            "positions predict the targets."
        )
    return tokens


def _check_ids(
    datum: ReverseKLDatum, tokens: Tokens, reader: Reader | None, where: str
) -> None:  # fmt: skip
    if reader is None:
        return
    check_input(tokens, reader, where)
    targets = f"{where.rpartition('.')[0]}.target_tokens"
    check_tokens(datum.target_tokens, vocab_size=reader.vocab_size, where=targets)
