"""Door: learning rates and adapter sizes (`mint.recipe.hyperparams`)."""

from mint.recipe.hyperparams import (
    get_lora_lr_over_full_finetune_lr as get_lora_lr_over_full_finetune_lr,
)
from mint.recipe.hyperparams import get_lora_param_count as get_lora_param_count
from mint.recipe.hyperparams import get_lr as get_lr
