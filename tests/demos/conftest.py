"""What tests of demos share."""

from tests.recipe.conftest import pytest_pyfunc_call as pytest_pyfunc_call
from tests.rl_core.conftest import registered_tokenizer as registered_tokenizer
