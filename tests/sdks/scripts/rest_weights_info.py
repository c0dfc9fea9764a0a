"""A checkpoint says what it was trained on."""

import tinker
from tests.sdks.scripting import MODEL, new_model, refused, rest

path = new_model(rank=8, train_mlp=False).save_state("described").result().path
client = rest()
told = client.get_weights_info_by_tinker_path(path).result()
assert told.base_model == MODEL, told
assert told.is_lora, told
assert told.lora_rank == 8, told
assert getattr(told, "train_mlp", False) is False, told
assert getattr(told, "train_attn", True) is True, told
nobodys = "tinker://nobody/weights/x"
refused(
    lambda: client.get_weights_info_by_tinker_path(nobodys).result(),
    says="nobody",
    by=tinker.NotFoundError,
)
