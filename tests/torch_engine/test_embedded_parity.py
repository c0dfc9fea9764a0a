"""On the embedded model: our logits are transformers', our sampler's logprobs our trainer's."""

import numpy as np
import pytest
import torch
from tests.torch_engine.conftest import load_decoder, load_plain, random_adapter
from tests.torch_engine.sampling.harness import finish
from tests.torch_engine.test_decoder import packed_logits
from tokenizers import Tokenizer

from mint.core.datum import Datum
from mint.core.ids import ModelId, OperationId, SamplerId
from mint.core.model_input import ModelInput
from mint.core.operations import ForwardBackward, Sample, SampleResult
from mint.core.sampling import SamplingParams
from mint.torch_engine.budget import Budget
from mint.torch_engine.decoder import Decoder
from mint.torch_engine.decoding import Decoding
from mint.torch_engine.models.files import ModelFiles, eos_token_ids
from mint.torch_engine.models.loader import load_tokenizer
from mint.torch_engine.shared_batch import run_batch
from mint.torch_engine.training import TrainingPass

QUESTIONS = ("Question: What is 57 + 23?\nAnswer:", "The capital of France is")


@pytest.fixture(scope="module")
def decoder(embedded_model: ModelFiles) -> Decoder:
    return load_decoder(embedded_model.folder)


@pytest.fixture(scope="module")
def tokenizer(embedded_model: ModelFiles) -> Tokenizer:
    return load_tokenizer(embedded_model.folder)


def test_logits_are_those_of_transformers(decoder, tokenizer, embedded_model):
    inputs = [np.array(tokenizer.encode(q).ids, dtype=np.int32) for q in QUESTIONS]
    plain = load_plain(embedded_model.folder)
    for ours, tokens in zip(packed_logits(decoder, None, inputs), inputs, strict=True):
        with torch.no_grad():
            theirs = plain(input_ids=torch.from_numpy(tokens.astype(np.int64))[None]).logits[0]
        assert (ours - theirs).abs().max() <= 2e-4  # of logits up to 20


@pytest.mark.parametrize("temperature", [1.0, 0.8])
def test_sampler_and_trainer_agree(decoder, tokenizer, embedded_model, temperature):
    adapter = random_adapter(decoder, rank=8)
    adapter.flat.mul_(0.2)  # as far from the base model as some training takes it
    eos = frozenset(eos_token_ids(embedded_model.folder))
    decoding = Decoding(decoder, tokenizer, eos_ids=eos, max_sequences=8, kv_tokens=4096)
    prompts = [np.array(tokenizer.encode(q).ids, dtype=np.int32) for q in QUESTIONS]
    for n, prompt in enumerate(prompts):
        sample = Sample(
            sampler_id=SamplerId("s"),
            base_model="embedded",
            weights="s",
            prompt=ModelInput.from_ints(prompt),
            num_samples=3,
            params=SamplingParams(max_tokens=16, temperature=temperature, seed=n),
        )
        decoding.add(OperationId(str(n)), sample, adapter.pinned())

    gaps = []
    for operation_id, result in finish(decoding).items():
        assert isinstance(result, SampleResult)
        prompt = prompts[int(operation_id)]
        ids = [np.concatenate([prompt, s.tokens]) for s in result.sequences]
        data = tuple(
            Datum(ModelInput.from_ints(i[:-1]), {"target_tokens": i[1:].astype(np.int64)})
            for i in ids
        )
        forward = ForwardBackward(
            model_id=ModelId("m"), data=data, loss_fn="cross_entropy", forward_only=True,
            loss_fn_config={"temperature": temperature},
        )  # fmt: skip
        training = TrainingPass(decoder, adapter, forward)
        budget = Budget(memory=10_000, batch=10_000)
        assert not run_batch(decoder, [training], budget, lambda _: None)
        for logp, sequence in zip(training.result().logprobs, result.sequences, strict=True):
            gaps.append(np.abs(logp[len(prompt) - 1 :] - sequence.logprobs).max())
    assert len(gaps) == 6
    assert max(gaps) <= 1e-4
