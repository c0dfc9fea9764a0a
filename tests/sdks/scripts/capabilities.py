"""The server says which models it has."""

import tinker
from tests.sdks.scripting import MODEL

found = tinker.ServiceClient().get_server_capabilities().supported_models
assert [model.model_name for model in found] == [MODEL], found
context = getattr(found[0], "max_context_length", None)
assert context is None or context > 0, context
