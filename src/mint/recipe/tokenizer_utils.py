"""Door: tokenizers by name (`mint.recipe.tokenizers`)."""

from mint.recipe.tokenizers import Tokenizer as Tokenizer
from mint.recipe.tokenizers import get_registered_tokenizer_names as get_registered_tokenizer_names
from mint.recipe.tokenizers import get_tokenizer as get_tokenizer
from mint.recipe.tokenizers import is_tokenizer_registered as is_tokenizer_registered
from mint.recipe.tokenizers import register_tokenizer as register_tokenizer
from mint.recipe.tokenizers import unregister_tokenizer as unregister_tokenizer
