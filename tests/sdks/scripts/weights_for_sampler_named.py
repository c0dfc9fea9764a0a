"""Weights are saved for sampling under a name, and sampled from by their path."""

import tinker
from tests.sdks.scripting import done, learn, live_sampler, model_id, new_model, sample

training = new_model()
learn(training)
path = training.save_weights_for_sampler("named").result().path
assert path == f"tinker://{model_id(training)}/sampler_weights/named", path

named = done(tinker.ServiceClient().create_sampling_client(model_path=path))
[one], [other] = (sample(each, temperature=0.0) for each in (named, live_sampler(training)))
assert list(one.tokens) == list(other.tokens), (one, other)
again = done(training.create_sampling_client(path))
assert list(sample(again, temperature=0.0)[0].tokens) == list(one.tokens)
