"""Provenance: which sampling request each position of a datum came from.

Losses of some services weigh or check tokens by the request that drew them. A datum then carries
runs (spans) that cover it without gaps: parts of the prompts that were sent, and the tokens that
came back for them. Known since tinker 0.26; with an older one there is nothing to carry.
"""

from collections.abc import Callable
from typing import Any

from tinker import types

from mint.recipe.rl.prefix_merge import MergedSequence

PROMPT_SPAN: Callable[..., Any] | None = getattr(types, "PromptProvenanceSpan", None)
SAMPLED_SPAN: Callable[..., Any] | None = getattr(types, "SampledProvenanceSpan", None)


def with_provenance(datum: types.Datum, sequence: MergedSequence) -> types.Datum:
    """The datum with the runs it consists of.

    As it was, if the SDK knows no provenance or an action came without the name of its request.

    Args:
        sequence: what the datum was made of; the datum's input lacks its last position, the
            targets its first.
    """
    attach = getattr(datum, "with_provenance", None)
    if attach is None or not all(turn.action.sequence_id for turn in sequence.turns):
        return datum
    last = sequence.length - 1
    return attach(
        model_input=_spans(sequence, 0, last), loss_fn_inputs=_spans(sequence, 1, last + 1)
    )


def _spans(sequence: MergedSequence, first: int, stop: int) -> list[Any]:
    """The runs of positions first <= t < stop."""
    assert PROMPT_SPAN is not None
    assert SAMPLED_SPAN is not None
    spans = []
    for turn in sequence.turns:
        name = turn.action.sequence_id
        # a prompt holds the sequence up to here, so its own positions are the sequence's
        for kind, start, end, origin in (
            (PROMPT_SPAN, turn.prompt_start, turn.start, 0),
            (SAMPLED_SPAN, turn.start, turn.stop, turn.start),
        ):
            begin, length = max(start, first), min(end, stop) - max(start, first)
            if length > 0:
                spans.append(kind(sequence_id=name, offset=begin - origin, length=length))
    return spans
