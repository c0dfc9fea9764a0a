import numpy as np

from mint.core.datum import Datum
from mint.core.errors import Fault
from mint.core.ids import ModelId, SamplerId
from mint.core.model_input import ModelInput
from mint.core.operations import Failure, ForwardBackward, PassResult, Sample, SampleResult
from mint.core.sampling import SampledSequence, StopReason
from mint.server.store.records import Tokens
from mint.server.worker.accounting import tokens_of

SAMPLE = Sample(
    sampler_id=SamplerId("s"),
    base_model="tiny",
    weights=None,
    prompt=ModelInput.from_ints([1, 2, 3]),
    num_samples=2,
)


def test_a_pass_counts_the_tokens_it_reads():
    data = tuple(Datum(ModelInput.from_ints(range(n)), {}) for n in (4, 5))
    done = ForwardBackward(model_id=ModelId("m"), data=data, loss_fn="cross_entropy")

    assert tokens_of(done, PassResult(logprobs=(), metrics={})) == Tokens(trained=9)


def test_a_sample_counts_its_prompt_once_and_every_token_drawn():
    drawn = tuple(
        SampledSequence(np.zeros(n, "i4"), np.zeros(n, "f4"), StopReason.STOP) for n in (3, 1)
    )

    assert tokens_of(SAMPLE, SampleResult(sequences=drawn)) == Tokens(prompt=3, sampled=4)


def test_what_failed_counts_no_tokens():
    assert tokens_of(SAMPLE, Failure("no", Fault.USER)) == Tokens()
