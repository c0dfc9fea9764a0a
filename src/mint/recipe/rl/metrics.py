"""Door: what a step measures about policy, trainer and reference."""

from mint.recipe.rl.kl import TokenUsage as TokenUsage
from mint.recipe.rl.kl import compute_post_kl as compute_post_kl
from mint.recipe.rl.kl import discounted_future_sum_vectorized as discounted_future_sum_vectorized
from mint.recipe.rl.kl import incorporate_kl_penalty as incorporate_kl_penalty
from mint.recipe.rl.training_metrics import compute_kl_sample_train as compute_kl_sample_train
