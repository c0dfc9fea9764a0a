"""The losses for reinforcement learning: importance_sampling, ppo, cispo, dro."""

from tests.sdks.scripting import PROMPT, live_sampler, new_model, prompt, sample
from tinker import types

training = new_model()
sampler = live_sampler(training)
[sequence] = sample(sampler, max_tokens=5, stop=[], seed=3)
sampled = list(sequence.tokens)
scored = sampler.compute_logprobs(prompt([*PROMPT, *sampled])).result()
before = len(PROMPT) - 1
rollout = types.Datum(
    model_input=prompt([*PROMPT, *sampled[:-1]]),
    loss_fn_inputs={
        "target_tokens": [*PROMPT[1:], *sampled],
        "logprobs": scored[1:],
        "advantages": [0.0] * before + [1.0] * len(sampled),
    },  # type: ignore[arg-type]
)
losses = {}
for name, config in (
    ("importance_sampling", None),
    ("ppo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}),
    ("cispo", {"clip_low_threshold": 0.0, "clip_high_threshold": 4.0}),
    ("dro", {"beta": 0.01}),
):
    output = training.forward_backward([rollout], name, config).result()  # type: ignore[arg-type]
    losses[name] = output.metrics["loss:sum"]
training.optim_step(types.AdamParams(learning_rate=0.01)).result()

# Sampler and trainer agree, so every ratio is 1.
total = sum(sequence.logprobs)
for name, expected in (
    ("importance_sampling", -5.0), ("ppo", -5.0), ("cispo", -total), ("dro", -total),
):  # fmt: skip
    assert abs(losses[name] - expected) < 0.01, (name, losses, expected)
