"""Whether a served model's trainer and sampler compute the same logprobs, asked from outside.

A token is drawn with a logprob (decoding, token by token, with a cache). The same token is scored
again by `forward` (the training path, packed sequences) and by `compute_logprobs` (prefill), and
the three should differ by rounding only: what they differ by is an error of every policy ratio.
"""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mint.core.errors import ConfigError
from mint.core.parity import largest_gap

if TYPE_CHECKING:
    import mint
    from mint.client.connect import Connection

TEMPERATURES = (1.0, 0.7)
SAMPLES = 2
"""Of each prompt and temperature."""
TOKENS = 24
RANK = 8
STEP = 5e-3
"""Learning rate of the one step that makes a new adapter act: without it, B is 0 and every path
would pass that has forgotten the adapter."""
ACTS_FROM = 1e-3
"""Nats by which the adapter has to move some logprob, or the comparison says nothing about it."""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """How far two ways of computing the same tokens lie apart, in nats."""

    between: str
    temperature: float
    tokens: int
    mean: float
    max: float

    @classmethod
    def of(
        cls, between: str, temperature: float, one: Sequence[float], other: Sequence[float]
    ) -> "Gap":
        gaps = [abs(a - b) for a, b in zip(one, other, strict=True)]
        worst = max(gaps) if all(gap == gap for gap in gaps) else float("nan")
        return cls(
            between=between, temperature=temperature, tokens=len(gaps), mean=statistics.fmean(gaps),
            max=worst,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Parity:
    """What the check of one model found."""

    model: str
    checkpoint: str | None
    dtype: str
    gaps: Sequence[Gap]
    tolerance: float
    """Largest gap that is taken for rounding, by dtype."""
    adapter_moves_by: float
    """Largest difference between base model and adapter at the drawn tokens."""

    @property
    def is_clean(self) -> bool:
        """NaN is not."""
        return self.adapter_acts and all(gap.max <= self.tolerance for gap in self.gaps)

    @property
    def adapter_acts(self) -> bool:
        return self.adapter_moves_by >= ACTS_FROM

    @property
    def verdict(self) -> str:
        if not self.adapter_acts:
            return (
                f"the adapter moves no logprob by more than {self.adapter_moves_by:.1g}, so this "
                "says nothing about it. Give a checkpoint that was trained."
            )
        worst = max((gap.max for gap in self.gaps), key=lambda gap: (gap != gap, gap))
        limit = f"{self.tolerance:.2g} is the limit for {self.dtype}"
        if self.is_clean:
            return f"trainer and sampler agree: largest gap {worst:.2g} ({limit})"
        return f"trainer and sampler DIFFER: largest gap {worst:.2g} ({limit})"

    def as_dict(self) -> dict[str, Any]:
        return {**json.loads(json.dumps(asdict(self))), "is_clean": self.is_clean}


@dataclass(frozen=True)
class _Drawn:
    """One sequence, and the logprobs its sampler gave."""

    prompt: list[int]
    tokens: list[int]
    logprobs: list[float]

    @property
    def whole(self) -> list[int]:
        return self.prompt + self.tokens


def check_parity(
    connection: "Connection", *, model: str | None, checkpoint: str | None, seed: int = 0
) -> Parity:
    """Run the check on a base model of the server, with a new adapter or a saved one.

    Raises:
        ConfigError: the server offers several models and none is named, or hands out no tokenizer.
    """
    import mint
    from mint.cli.verification import fixed_prompts
    from mint.client.checkpoints import CheckpointStore

    with CheckpointStore(connection) as server:
        offered = {one["name"]: one for one in server.server()["models"]}
        if checkpoint:
            info = server.info(checkpoint)
            model, checkpoint = info["base_model"], info["path"]
    model = model or _only(list(offered))
    prompts = fixed_prompts(connection, model)
    with mint.ServiceClient(base_url=connection.base_url, api_key=connection.api_key) as service:
        if checkpoint:
            training = service.create_training_client_from_state(checkpoint).result()
        else:
            training = _acting_adapter(service, model, prompts, seed)
        sampler = training.save_weights_and_get_sampling_client().result()
        bare = service.create_sampling_client(base_model=model).result()
        gaps: list[Gap] = []
        moved = 0.0
        for temperature in TEMPERATURES:
            drawn = _draw(sampler, prompts, temperature, seed)
            said = [value for one in drawn for value in one.logprobs]
            trained = _by_forward(training, drawn, temperature)
            gaps.append(Gap.of("trainer and sampler", temperature, trained, said))
            if temperature == 1.0:  # what prompts are scored at
                prefilled = _by_prefill(sampler, drawn)
                gaps.append(Gap.of("prefill and sampler", temperature, prefilled, said))
                gaps.append(Gap.of("trainer and prefill", temperature, trained, prefilled))
                moved = Gap.of("", temperature, _by_prefill(bare, drawn), prefilled).max
    dtype = offered[model]["dtype"] if model in offered else "float32"
    return Parity(
        model=model, checkpoint=checkpoint, dtype=dtype, gaps=gaps,
        tolerance=largest_gap(dtype), adapter_moves_by=moved,
    )  # fmt: skip


def _only(offered: list[str]) -> str:
    if len(offered) == 1:
        return offered[0]
    raise ConfigError(
        f"the server offers {', '.join(offered) or 'models by name'}: say --model NAME, or give a "
        "--checkpoint."
    )


def _acting_adapter(
    service: "mint.ServiceClient", model: str, prompts: list[list[int]], seed: int
) -> "mint.TrainingClient":
    import mint

    training = service.create_lora_training_client(model, rank=RANK, seed=seed).result()
    data = [_datum(prompt) for prompt in prompts]
    passed = training.forward_backward(data, "cross_entropy")
    stepped = training.optim_step(mint.AdamParams(learning_rate=STEP))
    passed.result()
    stepped.result()
    return training


def _draw(
    sampler: "mint.SamplingClient", prompts: list[list[int]], temperature: float, seed: int
) -> list[_Drawn]:
    import mint

    params = mint.SamplingParams(max_tokens=TOKENS, temperature=temperature, seed=seed)
    waiting = [sampler.sample(mint.ModelInput.from_ints(p), SAMPLES, params) for p in prompts]
    return [
        _Drawn(prompt, list(sequence.tokens), list(sequence.logprobs or ()))
        for prompt, future in zip(prompts, waiting, strict=True)
        for sequence in future.result().sequences
    ]


def _by_forward(
    training: "mint.TrainingClient", drawn: Sequence[_Drawn], temperature: float
) -> list[float]:
    """Logprobs of the drawn tokens by the training path, at the temperature they were drawn at."""
    passed = training.forward(
        [_datum(one.whole) for one in drawn], "cross_entropy", {"temperature": temperature}
    ).result()
    return [
        float(value)
        for one, outputs in zip(drawn, passed.loss_fn_outputs, strict=True)
        for value in outputs["logprobs"].data[-len(one.tokens) :]
    ]


def _by_prefill(sampler: "mint.SamplingClient", drawn: Sequence[_Drawn]) -> list[float]:
    """The same at temperature 1, scored as tokens of a prompt."""
    import mint

    waiting = [sampler.compute_logprobs(mint.ModelInput.from_ints(one.whole)) for one in drawn]
    return [
        float("nan") if value is None else value
        for one, future in zip(drawn, waiting, strict=True)
        for value in future.result()[-len(one.tokens) :]
    ]


def _datum(tokens: list[int]) -> "mint.Datum":
    import mint

    return mint.Datum(
        model_input=mint.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": mint.TensorData(
                data=tokens[1:], dtype="int64", shape=[len(tokens) - 1]
            ),
            "weights": mint.TensorData(
                data=[1.0] * (len(tokens) - 1), dtype="float32", shape=[len(tokens) - 1]
            ),
        },
    )
