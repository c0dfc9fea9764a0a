"""Requests through a Decoding on a tiny model, and what plain transformers says about them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from tests.torch_engine.conftest import Tiny
from tests.torch_engine.reference import with_lora
from tokenizers import Tokenizer
from torch import Tensor

from mint.core.ids import OperationId, SamplerId
from mint.core.model_input import ModelInput
from mint.core.operations import Failure, Sample, SampleResult
from mint.core.sampling import SamplingParams, Stop
from mint.torch_engine.contiguous_store import ContiguousStore
from mint.torch_engine.decoding import Decoding
from mint.torch_engine.lora import TrainedAdapter

END_IDS = (256, 258)
"""End tokens of the tiny models."""
NO_STOP = Stop(eos=False)
layout = "contiguous"
"""Of keys and values; see the fixture `layout`."""


def decoding_of(tiny: Tiny, **settings: Any) -> Decoding:
    tokenizer = Tokenizer.from_file(str(tiny.folder / "tokenizer.json"))
    defaults: dict[str, Any] = {"max_sequences": 64, "kv_tokens": 20_000, "kv_layout": layout}
    return Decoding(tiny.decoder, tokenizer, eos_ids=frozenset(END_IDS), **(defaults | settings))


def request(prompt: Sequence[int] | np.ndarray, *, num_samples: int = 1, **asked: Any) -> Sample:
    """A Sample; what SamplingParams has no field for goes to Sample itself."""
    extra = {
        name: asked.pop(name)
        for name in (
            "prompt_logprobs",
            "topk_prompt_logprobs",
            "topk_sample_logprobs",
            "prompt_logprobs_last_n",
            "prompt_targets",
            "prompt_alt_tokens_k",
        )
        if name in asked
    }
    return Sample(
        sampler_id=SamplerId("s"),
        base_model="tiny",
        weights=None,
        prompt=ModelInput.from_ints(prompt),
        num_samples=num_samples,
        params=SamplingParams(**asked),
        **extra,
    )


def finish(decoding: Decoding) -> dict[str, SampleResult | Failure]:
    """Rounds until nothing is left to do; afterwards only cached prefixes may hold memory."""
    ended: dict[str, SampleResult | Failure] = {}
    rounds = 0
    while decoding.busy:
        rounds += 1
        assert rounds < 20_000, "the decoding never ends"
        for outcome in decoding.round():
            assert outcome.operation_id not in ended
            assert isinstance(outcome.result, SampleResult | Failure)
            ended[outcome.operation_id] = outcome.result
    assert (decoding.running, decoding.waiting) == (0, 0)
    assert decoding.cached_tokens == decoding._kv.reserved
    if isinstance(decoding._kv, ContiguousStore):
        assert decoding._kv._kv.nbytes == 0
    return ended


def sample_all(
    decoding: Decoding, requests: Mapping[str, tuple[Sample, TrainedAdapter | None]]
) -> dict[str, SampleResult]:
    """All at once; every one must succeed."""
    for name, (sample, adapter) in requests.items():
        decoding.add(OperationId(name), sample, adapter.pinned() if adapter else None)
    results: dict[str, SampleResult] = {}
    for name, result in finish(decoding).items():
        assert isinstance(result, SampleResult), result
        results[name] = result
    return results


def sample_one(tiny: Tiny, sample: Sample, adapter: TrainedAdapter | None = None) -> SampleResult:
    return sample_all(decoding_of(tiny), {"only": (sample, adapter)})["only"]


def failure_of(decoding: Decoding, sample: Sample) -> Failure:
    decoding.add(OperationId("wrong"), sample, None)
    result = finish(decoding)["wrong"]
    assert isinstance(result, Failure)
    return result


def reference_logits(tiny: Tiny, tokens: Sequence[int], adapter: TrainedAdapter | None) -> Tensor:
    """Float64 logits `[T, V]` of plain transformers with the adapter added by hooks."""
    model = with_lora(tiny.plain, adapter)[0] if adapter else tiny.plain
    with torch.no_grad():
        return model(input_ids=torch.tensor([list(tokens)])).logits[0].double()


def greedy(tiny: Tiny, prompt: Sequence[int], count: int, adapter: TrainedAdapter | None):
    """What transformers' own generate continues the prompt with."""
    model = with_lora(tiny.plain, adapter)[0] if adapter else tiny.plain
    out = model.generate(  # pyright: ignore[reportCallIssue]
        torch.tensor([list(prompt)]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        max_new_tokens=count,
        do_sample=False,
        eos_token_id=list(END_IDS),
        pad_token_id=END_IDS[0],
    )
    return out[0, len(prompt) :].tolist()
