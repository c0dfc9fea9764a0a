"""An unknown base model is refused with the ones there are, at once."""

import tinker
from tests.sdks.scripting import MODEL, base_sampler, done, new_model, refused

service = tinker.ServiceClient()
refused(lambda: new_model(service, base_model="nobody/nothing"), says=MODEL)
refused(
    lambda: done(service.create_sampling_client(base_model="nobody/nothing")).compute_logprobs(
        tinker.ModelInput.from_ints([1])
    ),
    says="nobody/nothing",
)
base_sampler(service)
