"""Door to checkpoints under the name that other code knows them by."""

from mint.recipe.stores.checkpoint_manager import CheckpointManager as CheckpointManager
from mint.recipe.stores.checkpoint_renderers import (
    get_renderer_name_from_checkpoint as get_renderer_name_from_checkpoint,
)
from mint.recipe.stores.checkpoint_renderers import (
    get_renderer_name_from_checkpoint_async as get_renderer_name_from_checkpoint_async,
)
from mint.recipe.stores.checkpoint_renderers import (
    resolve_renderer_name_from_checkpoint_or_default as resolve_renderer_name_from_checkpoint_or_default,
)
from mint.recipe.stores.checkpoint_renderers import (
    resolve_renderer_name_from_checkpoint_or_default_async as resolve_renderer_name_from_checkpoint_or_default_async,
)
from mint.recipe.stores.checkpoints import CheckpointRecord as CheckpointRecord
from mint.recipe.stores.checkpoints import get_last_checkpoint as get_last_checkpoint
from mint.recipe.stores.checkpoints import load_checkpoints_file as load_checkpoints_file
from mint.recipe.stores.checkpoints import save_checkpoint as save_checkpoint
from mint.recipe.stores.checkpoints import save_checkpoint_async as save_checkpoint_async
