"""What the scripts share: a client, a model, a datum, and how to say that a version lacks something.

A script runs with the SDK under test and uses nothing of ours: only `tinker`, in the ways that
version documents. Where versions differ, it asks the object it has.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import tinker
from tinker import types

MODEL = "tiny/llama"
"""The base model of the server: random weights, and a token id is a byte value."""

TEXT = list(b"What is 2+3? 5 now.")
PROMPT = TEXT[:12]


def sdk() -> tuple[int, ...]:
    """The version under test."""
    return tuple(int(part) for part in version("tinker").split("."))


def skip(reason: str) -> NoReturn:
    """This version cannot do it; the driver counts it apart."""
    print(f"SKIP: {reason}")
    sys.exit(0)


def needs(thing: Any, name: str) -> Any:
    """An attribute that some versions lack."""
    if not hasattr(thing, name):
        skip(f"no {name}")
    return getattr(thing, name)


def done(promised: Any) -> Any:
    """Its result; versions before 0.38 give some things at once that later ones promise."""
    return promised.result() if hasattr(promised, "result") else promised


def future_of(promised: Any) -> Future[Any]:
    """The plain future behind what a call gives; in some releases it gives that at once."""
    return promised.future() if hasattr(promised, "future") else promised


def new_model(service: tinker.ServiceClient | None = None, **options: Any) -> tinker.TrainingClient:
    service = service or tinker.ServiceClient()
    asked = {"base_model": MODEL, "rank": 4, "seed": 1, **options}
    return done(service.create_lora_training_client(**asked))


def base_sampler(service: tinker.ServiceClient | None = None) -> tinker.SamplingClient:
    """A client that samples from the base model."""
    service = service or tinker.ServiceClient()
    return done(service.create_sampling_client(base_model=MODEL))


def live_sampler(training: tinker.TrainingClient) -> tinker.SamplingClient:
    """A client that samples from what a model is now; releases before 0.38 ask for a name."""
    return done(training.save_weights_and_get_sampling_client(name="live"))


def prompt(tokens: Sequence[int] = PROMPT) -> types.ModelInput:
    return types.ModelInput.from_ints(list(tokens))


def datum(tokens: Sequence[int] = TEXT, weight: float = 1.0, **inputs: Any) -> types.Datum:
    """Each token is to predict the next one."""
    told: dict[str, Any] = {
        "target_tokens": list(tokens[1:]),
        "weights": [weight] * (len(tokens) - 1),
    }
    return types.Datum(model_input=prompt(tokens[:-1]), loss_fn_inputs=told | inputs)


def broken_datum() -> types.Datum:
    """Two targets for three tokens."""
    return datum(TEXT[:4], target_tokens=[1, 2])


def learn(training: tinker.TrainingClient, steps: int = 3, lr: float = 0.01) -> list[float]:
    """Train on TEXT; returns the loss before each step."""
    losses = []
    for _ in range(steps):
        passed = training.forward_backward([datum()], "cross_entropy")
        stepped = training.optim_step(types.AdamParams(learning_rate=lr))
        losses.append(passed.result().metrics["loss:sum"])
        stepped.result()
    return losses


def logprobs(training: tinker.TrainingClient, tokens: Sequence[int] = TEXT) -> list[float]:
    """Of a text, as a model has them now."""
    output = training.forward([datum(tokens)], "cross_entropy").result()
    return output.loss_fn_outputs[0]["logprobs"].tolist()


def sample(sampler: tinker.SamplingClient, num_samples: int = 1, **params: Any) -> Any:
    """The sequences of one request for continuations of PROMPT."""
    asked = types.SamplingParams(**{"max_tokens": 8, **params})
    answer = sampler.sample(prompt(), num_samples=num_samples, sampling_params=asked).result()
    return answer.sequences


def rest() -> Any:
    """Lists and looks after what a user has."""
    return tinker.ServiceClient().create_rest_client()


def model_id(training: tinker.TrainingClient) -> str:
    return training.get_info().model_id


def close(one: Sequence[float | None], other: Sequence[float | None], within: float = 1e-3) -> bool:
    """Whether two lists of numbers agree, place by place."""
    return len(one) == len(other) and all(
        a is b or (a is not None and b is not None and abs(a - b) <= within)
        for a, b in zip(one, other, strict=True)
    )


def refused(
    call: Callable[[], Any], says: str, by: type[Exception] = tinker.TinkerError
) -> Exception:
    """The error of a call that has to fail in a certain way, and to say why."""
    try:
        call()
    except by as error:
        refusal = error
    else:
        raise AssertionError(f"was not refused; expected an error with {says!r}")
    assert says in str(refusal), f"{says!r} is not in: {refusal}"
    return refusal


def chunk() -> int:
    """How many datums this version puts into one request, here: from 0.25 the server says."""
    return 128 if sdk() < (0, 8) else 1024 if sdk() < (0, 25) else 4096


def run_tinker(*words: str) -> str:
    """What the version's own command line prints."""
    tool = Path(sys.executable).with_name("tinker")
    ran = subprocess.run([tool, *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"tinker {' '.join(words)}: {ran.stdout}{ran.stderr}"
    return ran.stdout


def command(*words: str) -> Any:
    """The same, as data."""
    return json.loads(run_tinker("--format", "json", *words))
