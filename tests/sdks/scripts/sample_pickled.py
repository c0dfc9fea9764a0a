"""A sampling client is sent to another process by pickle."""

import pickle

from tests.sdks.scripting import base_sampler, learn, live_sampler, new_model, sample, sdk, skip

if sdk() < (0, 12):
    skip("no pickling before 0.12")
training = new_model()
learn(training)
for sampler in (base_sampler(), live_sampler(training)):
    copy = pickle.loads(pickle.dumps(sampler))
    [one], [other] = (sample(each, temperature=0.0) for each in (sampler, copy))
    assert list(one.tokens) == list(other.tokens), (one, other)
