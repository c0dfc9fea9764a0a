"""A session is closed by its client, and is over."""

import tinker
from tests.sdks.scripting import learn, model_id, needs, new_model, refused

service = tinker.ServiceClient()
close = needs(service, "close")
training = new_model(service)
model = model_id(training)
learn(training, steps=1)
close("success").result()

again = tinker.ServiceClient().create_rest_client()
assert again.get_training_run(model).result().training_run_id == model  # the record stays
refused(lambda: learn(training, steps=1), says="closed", by=RuntimeError)
