"""A checkpoint is downloaded as an archive by a link of its own."""

import io
import tarfile
import urllib.request

from tests.sdks.scripting import needs, new_model, rest

client = rest()
link = needs(client, "get_checkpoint_archive_url_from_tinker_path")
path = new_model().save_weights_for_sampler("packed").result().path
told = link(path).result()
assert told.expires is not None, told
with urllib.request.urlopen(told.url) as answer:  # no key: the link is the permission
    packed = io.BytesIO(answer.read())
with tarfile.open(fileobj=packed) as archive:
    names = {name.removeprefix("./") for name in archive.getnames()}
assert {"adapter_config.json", "adapter_model.safetensors"} <= names, names
