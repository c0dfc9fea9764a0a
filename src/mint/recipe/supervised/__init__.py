"""Learning from conversations: examples as datums, and what they cost in nats and bits."""

from mint.recipe.supervised.common import compute_bpb as compute_bpb
from mint.recipe.supervised.common import compute_mean_nll as compute_mean_nll
from mint.recipe.supervised.common import (
    create_rightshifted_model_input_and_leftshifted_targets as create_rightshifted_model_input_and_leftshifted_targets,
)
from mint.recipe.supervised.common import (
    datum_from_model_input_weights as datum_from_model_input_weights,
)
from mint.recipe.supervised.data import conversation_to_datum as conversation_to_datum
