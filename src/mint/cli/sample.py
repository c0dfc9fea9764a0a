"""mint sample: ask a base model or a checkpoint, and print what it says."""

from typing import TYPE_CHECKING, Any

import click

from mint.cli.output import hush_libraries, plain_failures

if TYPE_CHECKING:
    import mint
    from mint.client.connect import Connection


@click.command()
@click.argument("prompt")
@click.option(
    "--checkpoint", metavar="PATH", help="Saved weights: a path or an id of mint checkpoints."
)
@click.option("--model", metavar="NAME", help="A base model, as it is.")
@click.option("--max-tokens", default=64, show_default=True, type=click.IntRange(min=1))
@click.option("--temperature", default=1.0, show_default=True, type=click.FloatRange(min=0.0))
@click.option(
    "-n", "count", default=1, show_default=True, type=click.IntRange(min=1), help="Answers."
)
@click.option(
    "--stop", "stops", multiple=True, metavar="TEXT", help="End at this text; several may be given."
)
@click.option("--seed", type=int, help="Same seed, same answers.")
@click.option(
    "--raw/--chat",
    default=True,
    show_default=True,
    help="Send the prompt as it is, or as a user's message in the model's chat format.",
)
def sample(
    prompt: str,
    checkpoint: str | None,
    model: str | None,
    max_tokens: int,
    temperature: float,
    count: int,
    stops: tuple[str, ...],
    seed: int | None,
    raw: bool,
) -> None:
    """Ask a model PROMPT and print its answers.

    The server is found as the SDK finds it: MINT_BASE_URL and MINT_API_KEY, then TINKER_*, then
    the local embedded server.
    """
    if (checkpoint is None) == (model is None):
        raise click.UsageError("give either --checkpoint PATH or --model NAME.")
    hush_libraries()
    with plain_failures():
        found, path = _preflight(checkpoint)
        import mint

        with mint.ServiceClient(base_url=found.base_url, api_key=found.api_key) as service:
            client = service.create_sampling_client(model_path=path, base_model=model).result()
            params = mint.SamplingParams(
                max_tokens=max_tokens, temperature=temperature, seed=seed, stop=list(stops) or None
            )
            answers = _ask(client, prompt, raw, count, params)
    for number, answer in enumerate(answers, start=1):
        if count > 1:
            click.secho(f"--- {number}", dim=True)
        click.echo(answer)


def _preflight(checkpoint: str | None) -> "tuple[Connection, str | None]":
    """The server and the path to sample from; what is wrong with either is said within seconds."""
    from mint.client import settings
    from mint.client.connect import check, connect
    from mint.core.checkpoints import CheckpointRef, is_short_id

    path = checkpoint
    if checkpoint and not is_short_id(checkpoint):
        path = str(CheckpointRef.parse(checkpoint))
    found = connect(settings.read())
    check(found)
    if path and is_short_id(path):
        from mint.client.checkpoints import CheckpointStore

        with CheckpointStore(found) as server:
            path = str(server.info(path)["path"])
    return found, path


def _ask(
    client: "mint.SamplingClient",
    prompt: str,
    raw: bool,
    count: int,
    params: "mint.SamplingParams",
) -> list[str]:
    import mint

    tokenizer: Any = client.get_tokenizer()
    if raw:
        tokens = tokenizer.encode(prompt)
    elif tokenizer.chat_template:
        message = [{"role": "user", "content": prompt}]
        text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        tokens = tokenizer.encode(text, add_special_tokens=False)
    else:
        raise mint.ConfigError(
            f"{client.get_base_model()} has no chat format; leave --chat out to send plain text."
        )
    answer = client.sample(mint.ModelInput.from_ints(tokens), count, params).result()
    return [
        tokenizer.decode(sequence.tokens, skip_special_tokens=True).strip()
        for sequence in answer.sequences
    ]
