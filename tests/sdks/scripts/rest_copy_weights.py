"""A checkpoint is copied into a project, to a run of its own."""

import tinker
from tests.sdks.scripting import close, done, learn, logprobs, needs, new_model

service = tinker.ServiceClient()
needs(service, "copy_weights")
archive = tinker.ServiceClient(project_id="archive")
training = new_model(service)
learn(training)
path = training.save_state("original").result().path
copied = archive.copy_weights(path).result()
assert copied != path, copied
started = done(service.create_training_client_from_state(copied))
assert close(logprobs(started), logprobs(training))
