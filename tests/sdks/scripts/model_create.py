"""A LoRA model is made and described."""

from tests.sdks.scripting import MODEL, new_model

training = new_model(rank=8, train_unembed=False, user_metadata={"for": "a test"})
told = training.get_info()
assert told.model_id.endswith(":train:0"), told
assert told.model_data.model_name == MODEL, told
assert told.lora_rank == 8, told
assert told.is_lora, told
