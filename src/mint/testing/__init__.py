"""Small real things for tests, docs and workshops. Nothing else in `mint` imports this."""

from mint.testing.models import TinyModel, tiny_model

__all__ = ["TinyModel", "tiny_model"]
