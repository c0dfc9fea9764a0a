"""Renderers for text alone, each on a tokenizer that suits it, and talks that any of them takes."""

from functools import cache
from typing import Any

from hypothesis import strategies as st
from tests.recipe.renderers.conversations import answers, assistant, system, texts, user
from tests.recipe.renderers.fast import Fast
from tests.recipe.tokens import SPECIAL, ByteTokenizer
from tinker import EncodedTextChunk
from tokenizers import pre_tokenizers

from mint.recipe.messages import Message
from mint.recipe.renderers import RenderContext, RenderedMessage, Renderer, get_renderer
from mint.recipe.renderers.layout import text_chunks
from mint.recipe.renderers.turns import until_stop
from mint.torch_engine.models.tokenizer_files import CHATML, byte_letters, byte_level_bpe

MERGES = [("a", "s"), ("u", "s"), ("\u010a", "\u010a"), ("\u0120", "4"), ("<", "|")]
"""Of which the third joins two line breaks, so that it shows where text is cut."""


class FastTokenizer(Fast):
    """Byte-level BPE, with a chat template."""

    chat_template = CHATML

    def __init__(self) -> None:
        words = [*byte_letters(), *("".join(pair) for pair in MERGES), *SPECIAL]
        vocab = {word: i for i, word in enumerate(words)}
        cut = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        super().__init__(byte_level_bpe(vocab, MERGES, SPECIAL, cut), eos_token="<|endoftext|>")


class Bare(Renderer):
    """ "r:" for the role, the content, ";"; the prompt supplies "!" as the first of the output."""

    extends = True

    @property
    def has_extension_property(self) -> bool:
        return self.extends

    def get_stop_sequences(self) -> list[int]:
        return [ord(";")]

    def generation_suffix(self, role: str, ctx: RenderContext) -> list[int]:
        return self.encode_text(f"{role[0]}:!")

    def render_message(self, message: Message, ctx: RenderContext) -> RenderedMessage:
        supplied = "!" if message["role"] == "assistant" else ""
        return RenderedMessage(
            header=EncodedTextChunk(tokens=self.encode_text(f"{message['role'][0]}:")),
            output=text_chunks(self.encode_text(f"{supplied}{message['content']};")),
        )

    def parse_response(self, response):
        written, how = until_stop(response, ord(";"), self)
        return assistant(self.encoder.decode(written)), how


@cache
def renderer(name: str) -> Renderer:
    family, _, kind = name.partition(" on ")
    tokenizer: Any = FastTokenizer() if kind == "bpe" else ByteTokenizer(chat_template=CHATML)
    return get_renderer(family, tokenizer)


NAMES = [f"{f} on {t}" for f in ("role_colon", "llama3", "hf_template") for t in ("bytes", "bpe")]


@st.composite
def talks(draw: st.DrawFn, *, ends_with_answer: bool = True) -> list[Message]:
    """A system line or none, then questions and answers."""
    messages = [system(draw(texts()))] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(1, 3))):
        messages += [user(draw(texts())), assistant(draw(answers()))]
    return messages if ends_with_answer else messages[:-1]
