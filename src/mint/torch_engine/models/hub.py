"""Models of the Hugging Face hub: from its cache on this machine, or fetched now.

The hub's client is imported when it is needed, and asked once before anything is fetched: an
unreachable hub is then said within seconds instead of after a storm of retries. HF_HUB_OFFLINE,
HF_HOME, HF_ENDPOINT and HF_TOKEN mean what they mean everywhere.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mint.core.errors import MintError, UnknownModelError
from mint.torch_engine.models.files import missing_parts
from mint.torch_engine.models.support import check_supported

_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_WANTED = re.compile(
    r"config\.json|generation_config\.json|model(-\d+-of-\d+)?\.safetensors"
    r"|model\.safetensors\.index\.json|tokenizer\.json|tokenizer_config\.json"
    r"|special_tokens_map\.json|added_tokens\.json|chat_template\.(jinja|json)|LICENSE(\.\w+)?"
)
"""Of the top folder; everything else (other formats of the same weights, demos) stays there."""


@dataclass(frozen=True)
class Hub:
    """The hub, as far as we use it.

    Attributes:
        endpoint: base URL; None: HF_ENDPOINT or the public hub.
        cache: folder; None: the user's HF cache.
        timeout_s: for the first answer. Once the hub answers, fetching takes what it takes.
    """

    endpoint: str | None = None
    cache: Path | None = None
    timeout_s: float = 10.0

    def cached(self, name: str) -> Path | None:
        """The model's folder in the cache, if all parts of it are there."""
        if not is_repo(name):
            return None
        from huggingface_hub import try_to_load_from_cache

        # Not snapshot_download(local_files_only=True): it calls a snapshot incomplete that lacks
        # the files we never asked for.
        config = try_to_load_from_cache(name, "config.json", cache_dir=self.cache)
        if not isinstance(config, str):
            return None
        folder = Path(config).parent
        return None if missing_parts(folder) else folder

    def cached_names(self) -> list[str]:
        """Names of all models the cache has something of, whole or not."""
        root = self._cache_root()
        folders = sorted(root.glob("models--*--*")) if root.is_dir() else []
        return [folder.name.removeprefix("models--").replace("--", "/", 1) for folder in folders]

    def fetch(self, name: str) -> Path:
        """Download the model into the cache and give its folder.

        Its config.json is read first, so that a model we would refuse costs no gigabytes.

        Raises:
            UnknownModelError: not a hub name, not there, not allowed, no network, or a part that
                we need is missing there.
            UnsupportedError: our attention would compute this model wrongly.
        """
        if not is_repo(name):
            raise UnknownModelError("not a hub name, which would be ORGANISATION/MODEL")
        wanted = self._wanted_files(name)
        from huggingface_hub import hf_hub_download, snapshot_download

        place: dict[str, Any] = {
            "cache_dir": self.cache,
            "endpoint": self.endpoint,
            "etag_timeout": self.timeout_s,
        }
        try:
            config = Path(hf_hub_download(name, "config.json", **place))
            check_supported(json.loads(config.read_text(encoding="utf-8")), name)
            return Path(snapshot_download(name, allow_patterns=wanted, max_workers=4, **place))
        except MintError:
            raise
        except Exception as error:  # of the client's HTTP library too, which is not always the same
            raise UnknownModelError(f"the hub: download failed: {_first_line(error)}") from error

    def _wanted_files(self, name: str) -> list[str]:
        """Which files to fetch; one request, without retries."""
        from huggingface_hub import HfApi
        from huggingface_hub.errors import (
            GatedRepoError,
            OfflineModeIsEnabled,
            RepositoryNotFoundError,
        )

        try:
            info = HfApi(endpoint=self.endpoint).model_info(name, timeout=self.timeout_s)
        except GatedRepoError:
            reason = "gated: accept its terms on its page and set HF_TOKEN"
        except RepositoryNotFoundError:
            reason = "no such model there (or a private one: set HF_TOKEN)"
        except OfflineModeIsEnabled:
            reason = "not asked, since HF_HUB_OFFLINE is set"
        except Exception as error:  # of the client's HTTP library, which is not always the same
            reason = f"not reachable ({type(error).__name__}: {_first_line(error)})"
        else:
            return self._select(file.rfilename for file in info.siblings or [])
        raise UnknownModelError(f"the hub: {reason}")

    @staticmethod
    def _select(names: Iterable[str]) -> list[str]:
        wanted = [name for name in names if _WANTED.fullmatch(name)]
        for part, form in (
            ("config.json", "config.json"),
            ("tokenizer.json", "tokenizer.json"),
            ("weights in safetensors", "model.*[.]safetensors"),
        ):
            if not any(re.fullmatch(form, name) for name in wanted):
                raise UnknownModelError(f"the hub: it is there, but has no {part}")
        return wanted

    def _cache_root(self) -> Path:
        if self.cache:
            return self.cache
        from huggingface_hub.constants import HF_HUB_CACHE

        return Path(HF_HUB_CACHE)


def is_repo(name: str) -> bool:
    """Whether this could be a name on the hub."""
    return _REPO.fullmatch(name) is not None and ".." not in name and "--" not in name


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no reason given"])[0][:200]
