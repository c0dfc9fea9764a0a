"""An optimizer step, with every field of Adam that the version has."""

from tests.sdks.scripting import close, datum, learn, logprobs, new_model
from tinker import types

training = new_model()
losses = learn(training, steps=4)
assert losses[-1] < losses[0], losses

fields = {
    "learning_rate": 0.01, "beta1": 0.8, "beta2": 0.9, "eps": 1e-8, "weight_decay": 0.1,
    "grad_clip_norm": 0.5,
}  # fmt: skip
known = types.AdamParams.model_fields
adam = types.AdamParams(**{name: value for name, value in fields.items() if name in known})
before = logprobs(training)
training.forward_backward([datum()], "cross_entropy").result()
stepped = training.optim_step(adam).result()
assert not close(logprobs(training), before)
assert all(isinstance(value, int | float) for value in (stepped.metrics or {}).values()), stepped

training.forward_backward([datum()], "cross_entropy").result()
training.optim_step(types.AdamParams()).result()  # old releases then send none of the fields
