"""What a Sample may ask for: refused here, before anything is computed. Pure."""

from mint.core.errors import CapacityError, UserError
from mint.core.model_input import Tokens, check_tokens
from mint.core.operations import Sample
from mint.core.prompt_scores import check_scores


def checked_prompt(sample: Sample, vocab_size: int) -> Tokens:
    """The prompt's tokens, if the request as a whole makes sense for the model.

    Raises:
        UserError: a number is out of range, the prompt is empty, or an id is not the model's.
    """
    for name in ("topk_prompt_logprobs", "topk_sample_logprobs"):
        if getattr(sample, name) < 0:
            raise UserError(f"{name}={getattr(sample, name)}: give 0 (off) or more.")
    if sample.num_samples < 1:
        raise UserError(f"num_samples={sample.num_samples}: give 1 or more.")
    tokens = sample.prompt.tokens()
    if not len(tokens):
        raise UserError("prompt is empty. Give at least one token.")
    check_tokens(tokens, vocab_size=vocab_size, where="prompt")
    check_scores(sample, prompt_tokens=len(tokens), vocab_size=vocab_size)
    return tokens


def room_after(prompt: int, asked: int | None, *, context: int, held: int) -> int:
    """How many tokens may follow a prompt of this length: `asked`, but no more than the context
    holds; without `asked`, all that the context and the KV cache hold.

    Args:
        asked: max_tokens of the request.
        held: tokens of keys and values the engine keeps at most.

    Raises:
        UserError: the context holds no token after the prompt.
        CapacityError: its keys and values would never fit.
    """
    if prompt >= context:
        raise UserError(
            f"the prompt has {prompt} tokens and the model's context holds {context}, prompt and "
            f"continuation together. Send at most {context - 1} prompt tokens."
        )
    room = context - prompt
    # The last token is never fed back, so it needs no keys and values.
    room = max(1, min(room, held - prompt + 1)) if asked is None else min(room, asked)
    if prompt + room - 1 > held:
        raise CapacityError(
            f"a prompt of {prompt} tokens with max_tokens={room} needs keys and values for "
            f"{prompt + room - 1} tokens, but this server keeps {held} at most. Shorten the "
            "prompt, lower max_tokens, or give the server more memory."
        )
    return room
