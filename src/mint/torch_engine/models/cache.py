"""Where converted models are kept between runs."""

import os
from pathlib import Path

from platformdirs import user_cache_dir


def cache_folder() -> Path:
    """MINT_CACHE, or else the user's cache folder for mint."""
    return Path(os.environ.get("MINT_CACHE") or user_cache_dir("mint"))
