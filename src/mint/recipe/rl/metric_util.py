"""Door: numbers of episodes, in training and on a test set."""

from mint.recipe.rl.episode_metrics import compute_trajectory_metrics as compute_trajectory_metrics
from mint.recipe.rl.evaluation import RLTestSetEvaluator as RLTestSetEvaluator
