"""An image is refused for what it is."""

from tests.sdks.scripting import PROMPT, base_sampler, needs, refused, sample
from tinker import types

image = needs(types, "ImageChunk")
options = {"data": b"\x89PNG", "format": "png"}
fields = getattr(image, "model_fields", {})
for name in ("height", "width", "tokens"):  # 0.6
    if name in fields and fields[name].is_required():
        options[name] = 1
sampler = base_sampler()
mixed = types.ModelInput(chunks=[types.EncodedTextChunk(tokens=PROMPT), image(**options)])
refused(lambda: sampler.sample(mixed, 1, types.SamplingParams(max_tokens=2)).result(), says="image")
sample(sampler)
