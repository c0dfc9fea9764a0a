"""The one place that chooses how keys and values are laid out."""

import logging
from typing import Any

from mint.core.errors import ConfigError
from mint.core.kv_layouts import KV_LAYOUTS
from mint.torch_engine.contiguous_store import ContiguousStore
from mint.torch_engine.kv_store import KvShape, KvStore
from mint.torch_engine.paged_attention import gathered_attention
from mint.torch_engine.paged_kernel import PAGE, kernel_attention, refusal
from mint.torch_engine.paged_store import PagedStore

GATHERED_PAGE = 16
"""Tokens of a page where no kernel prescribes more: shorter ones share more and leave less empty."""

log = logging.getLogger(__name__)


def open_store(layout: str, shape: KvShape, heads: int, tokens: int) -> KvStore[Any]:
    """A store of keys and values of a model with so many query heads.

    "auto" is pages where the kernel that reads them can serve, and places everywhere else: without
    it each step would copy all keys and values. "paged" does that, slowly, where it cannot.

    Raises:
        ConfigError: there is no such layout, or `tokens` are too few for its pages.
    """
    if layout not in KV_LAYOUTS:
        raise ConfigError(f"kv_layout={layout!r}: give one of {', '.join(KV_LAYOUTS)}.")
    if layout == "contiguous" or (layout == "auto" and shape.device.type != "cuda"):
        return ContiguousStore(shape, tokens)
    why = refusal(shape, heads)
    if why is None:
        log.info("keys and values lie in pages of %d tokens", PAGE)
        return PagedStore(shape, tokens, PAGE, kernel_attention)
    if layout == "auto":
        log.warning("keys and values lie in one piece per text, not in pages: %s", why)
        return ContiguousStore(shape, tokens)
    log.warning("keys and values in pages are gathered in every step, which is slow: %s", why)
    return PagedStore(shape, tokens, GATHERED_PAGE, gathered_attention)
