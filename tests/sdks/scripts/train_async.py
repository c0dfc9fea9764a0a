"""The same calls from async code."""

import asyncio
import inspect

import tinker
from tests.sdks.scripting import MODEL, PROMPT, TEXT, datum, prompt
from tinker import types


async def main() -> None:
    service = tinker.ServiceClient()
    training = await service.create_lora_training_client_async(base_model=MODEL, rank=4)
    passed = await training.forward_backward_async([datum()], "cross_entropy")
    stepped = await training.optim_step_async(types.AdamParams(learning_rate=0.01))
    output, _ = await asyncio.gather(passed, stepped)
    assert output.loss_fn_outputs[0]["logprobs"].shape == [len(TEXT) - 1]

    sampler = await training.save_weights_and_get_sampling_client_async(name="live")
    asked = types.SamplingParams(max_tokens=3, stop=[])
    answers = await asyncio.gather(
        *(sampler.sample_async(prompt(), 2, asked) for _ in range(8)),
    )
    assert [len(answer.sequences) for answer in answers] == [2] * 8
    scored = sampler.compute_logprobs_async(prompt())
    assert len(await scored if inspect.isawaitable(scored) else scored) == len(PROMPT)


asyncio.run(main())
