"""What a Sample may want to know about its prompt: one check, for the queue and for the engine."""

from mint.core.errors import UserError
from mint.core.operations import Sample


def check_scores(sample: Sample, *, prompt_tokens: int, vocab_size: int) -> None:
    """Refuse what cannot be told of a prompt of that length.

    Raises:
        UserError: a number is out of range, or the targets do not fit the prompt.
    """
    if sample.prompt_alt_tokens_k < 0:
        raise UserError(f"prompt_alt_tokens_k={sample.prompt_alt_tokens_k}: give 0 (off) or more.")
    last_n = sample.prompt_logprobs_last_n
    if last_n is not None:
        if not sample.prompt_logprobs:
            raise UserError("prompt_logprobs_last_n says something only with prompt_logprobs.")
        if not 1 <= last_n < prompt_tokens:
            raise UserError(
                f"prompt_logprobs_last_n={last_n}: give 1 to {prompt_tokens - 1} for a prompt of "
                f"{prompt_tokens} tokens, whose first has nothing before it."
            )
    targets = sample.prompt_targets
    if targets is None:
        return
    if targets.shape[0] != prompt_tokens - 1:
        raise UserError(
            f"target_prompt_logprobs has {targets.shape[0]} rows; a prompt of {prompt_tokens} "
            f"tokens takes {prompt_tokens - 1}, one for each token but the first."
        )
    ids = targets.values
    if len(ids) and not -1 <= int(ids.min()) <= int(ids.max()) < vocab_size:
        raise UserError(
            f"target_prompt_logprobs holds ids from {ids.min()} to {ids.max()}, but the model's "
            f"run from 0 to {vocab_size - 1} (-1 asks for nothing)."
        )
