"""Door to the log of a run under the name that other code knows it by."""

from mint.recipe.stores.metrics_log import Logger as Logger
from mint.recipe.stores.metrics_log import setup_logging as setup_logging
