"""Door to the ledger of checkpoints under the name that other code knows it by."""

from mint.recipe.stores.checkpoints import CheckpointRecord as CheckpointRecord
from mint.recipe.stores.checkpoints import get_last_checkpoint as get_last_checkpoint
from mint.recipe.stores.checkpoints import load_checkpoints_file as load_checkpoints_file
from mint.recipe.stores.checkpoints import save_checkpoint as save_checkpoint
from mint.recipe.stores.checkpoints import save_checkpoint_async as save_checkpoint_async
