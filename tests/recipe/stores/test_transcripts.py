import numpy as np
from tests.recipe.run_folders import CharTokenizer, played, said

from mint.recipe.pages.transcription import Transcript, read_transcript
from mint.recipe.stores import transcripts
from mint.recipe.stores.transcripts import TranscriptGroup, write_transcripts


def test_an_iteration_is_written_and_read_back(tmp_path):
    ended = said("Q", "7", 1.0, metrics={"correct": 1.0, "stop/max_tokens": 1.0}, logs={"n": "x"})
    group = TranscriptGroup(["sums"], played([ended], [said("Q", "8")]), np.array([0.5, -0.5]))

    write_transcripts(tmp_path, "train", 7, [group], CharTokenizer())

    found = read_transcript(tmp_path / "iteration_000007" / "train_logtree.json")
    first, second = found.groups[0].episodes
    assert isinstance(found, Transcript)
    assert (found.split, found.iteration, found.groups[0].tags) == ("train", 7, ["sums"])
    assert (first.total_reward, first.advantage, first.stop_reason) == (1.0, 0.5, "max_tokens")
    assert first.turns[0].pieces[0].text == "7"
    assert second.stop_reason is None
    assert "sums" in (tmp_path / "iteration_000007" / "train.html").read_text()


def test_an_evaluation_is_named_after_its_split(tmp_path):
    write_transcripts(tmp_path, "eval/test", 0, [], CharTokenizer())

    assert sorted(path.name for path in (tmp_path / "iteration_000000").iterdir()) == [
        "eval_test.html", "eval_test_logtree.json",
    ]  # fmt: skip


def test_a_page_that_cannot_be_made_ends_no_run(tmp_path, monkeypatch, caplog):
    def fails(transcript: Transcript) -> str:
        raise RuntimeError("no page")

    monkeypatch.setattr(transcripts, "transcript_page", fails)
    write_transcripts(tmp_path, "train", 0, [], CharTokenizer())

    assert read_transcript(tmp_path / "iteration_000000" / "train_logtree.json").groups == []
    assert "no page" in caplog.text
