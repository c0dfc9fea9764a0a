"""Weights are sampled from without a name, and stay what they were when training goes on."""

from tests.sdks.scripting import close, learn, live_sampler, new_model, prompt

training = new_model()
early = live_sampler(training)
before = early.compute_logprobs(prompt()).result()
learn(training, steps=5)
late = live_sampler(training)

assert close(early.compute_logprobs(prompt()).result(), before)
assert not close(late.compute_logprobs(prompt()).result(), before)
