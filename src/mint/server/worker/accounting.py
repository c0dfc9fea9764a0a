"""How much an operation has computed, for its owner's usage. Pure."""

from mint.core.operations import (
    Failure,
    ForwardBackward,
    Operation,
    PassResult,
    Result,
    ReverseKL,
    ReverseKLResult,
    Sample,
    SampleResult,
)
from mint.server.store.records import Tokens


def tokens_of(operation: Operation, result: Result | Failure) -> Tokens:
    """The tokens of an operation that has ended; a failed one has none to its name."""
    match operation, result:
        case ForwardBackward(data=data), PassResult():
            return Tokens(trained=sum(len(datum.model_input.tokens()) for datum in data))
        case ReverseKL(data=data), ReverseKLResult():  # the reference only reads
            return Tokens(
                trained=sum(len(datum.student_input.tokens()) for datum in data),
                prompt=sum(len(datum.reference_input.tokens()) for datum in data),
            )
        case Sample(prompt=prompt), SampleResult(sequences=sequences):
            return Tokens(
                prompt=len(prompt.tokens()),
                sampled=sum(len(sequence.tokens) for sequence in sequences),
            )
        case _:
            return Tokens()
