import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recipe.run_folders import CharTokenizer, played, said

from mint import ModelInput, types
from mint.recipe.completers import TokensWithLogprobs
from mint.recipe.pages.transcription import (
    TranscriptGroup,
    read_transcript,
    token_pieces,
    transcribe,
)
from mint.recipe.rl.types import Transition


class Utf8Tokenizer:
    """A token per byte, so that most characters are cut into several."""

    def decode(self, ids: list[int], /) -> str:
        return bytes(ids).decode("utf-8", errors="replace")


class SpaceDropper:
    """Words; the space in front of the first one decoded is dropped, as some tokenizers do."""

    words = (" a", " b")

    def decode(self, ids: list[int], /) -> str:
        return "".join(self.words[one] for one in ids)[1:]


def test_a_character_of_several_tokens_is_one_piece_with_the_sum_of_their_logprobs():
    pieces = token_pieces(Utf8Tokenizer(), list("aé".encode()), [-1.0, -0.5, -0.25])

    assert [(one.text, len(one.tokens), one.logprob) for one in pieces] == [
        ("a", 1, -1.0), ("é", 2, -0.75),
    ]  # fmt: skip


def test_bytes_that_make_no_character_are_shown_and_stop_nothing():
    pieces = token_pieces(Utf8Tokenizer(), [0xFF] * 20 + [65], None)

    assert sum(len(one.tokens) for one in pieces) == 21
    assert max(len(one.tokens) for one in pieces) == 8
    assert pieces[-1].text.endswith("A")


def test_spaces_between_words_are_kept():
    pieces = token_pieces(SpaceDropper(), [0, 1, 0], None)

    assert [one.text for one in pieces] == ["a", " b", " a"]


@given(st.text(max_size=40))
def test_pieces_put_together_are_the_text(text):
    pieces = token_pieces(Utf8Tokenizer(), list(text.encode("utf-8", "replace")), None)

    assert "".join(one.text for one in pieces) == text.encode("utf-8", "replace").decode()


def test_a_later_turn_shows_only_what_is_new_in_its_prompt():
    extending = [said("Q", "a"), said("QaR", "b")]
    forgetting = [said("Q", "a"), said("R", "b")]
    [group] = transcribe(
        "train", 0, [TranscriptGroup([], played(extending, forgetting))], CharTokenizer()
    ).groups

    first, second = group.episodes
    assert [(t.prompt, t.prompt_extends, t.prompt_tokens) for t in first.turns] == [
        ("Q", False, 1), ("R", True, 3),
    ]  # fmt: skip
    assert [(t.prompt, t.prompt_extends) for t in second.turns] == [("Q", False), ("R", False)]


def test_an_image_is_named_in_its_place():
    image = types.ImageChunk(data=b"png", format="png", expected_tokens=3)
    prompt = ModelInput(
        chunks=[
            types.EncodedTextChunk(tokens=[65]), image, types.EncodedTextChunk(tokens=[66]),
        ]
    )  # fmt: skip
    turn = Transition(prompt, TokensWithLogprobs([67], None), 0.0, True)
    transcript = transcribe("train", 0, [TranscriptGroup([], played([turn]))], CharTokenizer())

    assert transcript.groups[0].episodes[0].turns[0].prompt == "A[image]B"


def test_a_failed_group_is_left_out():
    group = TranscriptGroup([], None)

    assert transcribe("train", 0, [group], CharTokenizer()).groups == []


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"schema_version": 99, "groups": []})])
def test_what_is_no_transcript_is_refused_by_its_path(tmp_path, text):
    path = tmp_path / "train_logtree.json"
    path.write_text(text)

    with pytest.raises(ValueError, match=r"train_logtree\.json is no transcript"):
        read_transcript(path)
