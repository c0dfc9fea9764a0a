"""A training checkpoint is sampled from."""

import tinker
from tests.sdks.scripting import close, done, learn, live_sampler, new_model, prompt

training = new_model()
learn(training, steps=5)
path = training.save_state("kept").result().path
saved = done(tinker.ServiceClient().create_sampling_client(model_path=path))
one, other = (each.compute_logprobs(prompt()).result() for each in (saved, live_sampler(training)))
assert close(one, other), (one, other)
