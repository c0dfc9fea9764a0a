"""Weights are saved for the outside world, and each file is downloaded by a link of its own."""

import json
import urllib.request

from tests.sdks.scripting import needs, new_model, rest

training = new_model()
save = needs(training, "save_weights_external")
path = save("abroad").result().path
assert "/external_weights/abroad" in path, path

told = rest().get_external_weights_urls(path).result()
assert {"adapter_config.json", "adapter_model.safetensors"} <= set(told.urls), told
with urllib.request.urlopen(told.urls["adapter_config.json"]) as answer:
    assert json.load(answer)["r"] == 4
