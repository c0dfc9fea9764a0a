"""check_pass: whether a pass over data can be computed. Asked before it is queued, so that a mistake
costs nothing, and by an engine, which knows its model and may be used without a server."""

from dataclasses import dataclass
from typing import Protocol

from mint.core import losses
from mint.core.errors import UserError
from mint.core.model_input import Tokens, check_tokens
from mint.core.operations import ForwardBackward


class Reader(Protocol):
    """A base model as far as its input is concerned."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def max_context(self) -> int:
        """Most tokens of one input."""
        ...


@dataclass(frozen=True, eq=False)
class CheckedPass:
    """What was read on the way.

    Attributes:
        inputs: the input tokens of each datum, int32 `[n]`.
    """

    loss: losses.Loss
    inputs: tuple[Tokens, ...]

    @property
    def tokens(self) -> int:
        """Of all inputs together: the work it asks for."""
        return sum(len(tokens) for tokens in self.inputs)


def check_input(tokens: Tokens, reader: Reader, where: str) -> None:
    """Refuse what the base model cannot read, by its name in the request.

    Raises:
        UserError: it is longer than the context, or an id is not the model's.
    """
    if len(tokens) > reader.max_context:
        raise UserError(
            f"{where} has {len(tokens)} tokens, but the model's context holds "
            f"{reader.max_context}. Shorten the example."
        )
    check_tokens(tokens, vocab_size=reader.vocab_size, where=f"{where}.tokens")


def check_pass(operation: ForwardBackward, reader: Reader | None) -> CheckedPass:
    """Refuse a pass that cannot be computed, naming datum and field.

    Args:
        reader: the base model; None while it is not known, and then ids and lengths are not looked
            at.

    Raises:
        UserError: the loss, its config, or a datum is wrong.
    """
    loss = losses.resolve(operation.loss_fn, operation.loss_fn_config)
    if not operation.data:
        raise UserError("data is empty. Give at least one datum.")
    inputs: list[Tokens] = []
    for i, datum in enumerate(operation.data):
        losses.check(datum, loss, i)
        tokens = datum.model_input.tokens()
        inputs.append(tokens)
        if reader is None:
            continue
        check_input(tokens, reader, f"data[{i}].model_input")
        check_tokens(
            datum.loss_fn_inputs["target_tokens"].reshape(-1),
            vocab_size=reader.vocab_size,
            where=f"data[{i}].loss_fn_inputs['target_tokens']",
        )
    return CheckedPass(loss, tuple(inputs))
