"""What tests of adapters share."""

import signal
from collections.abc import Iterator

import pytest
from tests.recipe.conftest import pytest_pyfunc_call as pytest_pyfunc_call
from tests.rl_core.world import MODEL, TOKENIZER

from mint.recipe.tokenizers import register_tokenizer, unregister_tokenizer


@pytest.fixture(autouse=True)
def registered_tokenizer() -> Iterator[None]:
    """The small world's model has its tokenizer by name."""
    register_tokenizer(MODEL, lambda: TOKENIZER)
    yield
    unregister_tokenizer(MODEL)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """An interrupt raises KeyboardInterrupt here and in programs begun here, also where a script has
    begun the tests with `&`, which makes their process ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
