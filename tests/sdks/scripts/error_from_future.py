"""A mistake is told by the future of its call, as the user's, and the client goes on."""

import tinker
from tests.sdks.scripting import broken_datum, datum, learn, new_model, refused
from tinker import types

training = new_model()
for call, says in (
    (lambda: training.forward_backward([datum()], "cross_entropy", {"clip": 1.0}), "clip"),
    (lambda: training.forward_backward([datum(), broken_datum()], "cross_entropy"), "data[1]"),
    (lambda: training.forward([datum([1, 9_999_999])], "cross_entropy"), "9999999"),
    (lambda: training.save_state("a/b"), "a/b"),
    (lambda: training.load_state("tinker://nobody/weights/x"), "nobody"),
):
    error = refused(lambda call=call: call().result(), says)
    assert isinstance(error, tinker.RequestFailedError), error
    assert error.category == "user", error
refused(lambda: training.optim_step(types.AdamParams()).result(), says="gradient")
learn(training, steps=2)
