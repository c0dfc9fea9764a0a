"""Small real things for tests, docs and workshops. Nothing else in `mint` imports this."""

from mint.testing.models import TinyModel, tiny_model
from mint.testing.service import LocalService, local_service

__all__ = ["LocalService", "TinyModel", "local_service", "tiny_model"]
