"""A text is scored, as the trainer would."""

from tests.sdks.scripting import TEXT, close, learn, live_sampler, logprobs, new_model, prompt

training = new_model()
learn(training)
scored = live_sampler(training).compute_logprobs(prompt(TEXT)).result()
assert scored[0] is None, scored
assert close(scored[1:], logprobs(training)), "sampler and trainer differ"
