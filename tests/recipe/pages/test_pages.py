"""Pages: they show what is there, and whatever a model says stays text."""

import re
from html.parser import HTMLParser

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from tests.recipe.run_folders import CharTokenizer, a_run, played, row, said, write_run

from mint.cli.main import main
from mint.recipe.exceptions import DataFormatError
from mint.recipe.pages.rendering import number, render, visible
from mint.recipe.pages.run_page import flat_settings, run_page
from mint.recipe.pages.run_record import read_run
from mint.recipe.pages.transcript_page import shown, transcript_page
from mint.recipe.pages.transcription import TranscriptGroup, transcribe
from mint.recipe.stores.transcripts import write_transcripts

EVIL = "</span></div><script>alert(1)</script><img src=x onerror=alert(2)>\" onmouseover='alert(3)"


class Tags(HTMLParser):
    """Every element of a page with its attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


def assert_harmless(page: str) -> None:
    """No script, no handler, no address: nothing a page could do or ask for."""
    for tag, attributes in Tags(page).elements:
        assert tag not in {"script", "img", "iframe", "object", "form", "base"}
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in {"href", "src", "action"}:
                assert value == "data:,"
            if name == "style":
                assert re.fullmatch(r"(--[as]:[01](\.\d\d)?;?)*", value or "")


def a_transcript(answer: str, prompt: str = "Q", **more):
    group = TranscriptGroup(["tag " + answer], played([said(prompt, answer, 1.0, **more)]), [0.5])
    return transcribe("train", 0, [group], CharTokenizer())


def test_markup_in_what_a_model_says_stays_text():
    page = transcript_page(a_transcript(EVIL, prompt=EVIL, logs={EVIL: EVIL}))

    assert_harmless(page)
    assert "".join(Tags(page).text).count("<script>alert(1)</script>") >= 3
    assert "default-src 'none'" in page


@given(st.text(max_size=30), st.text(max_size=30))
def test_whatever_is_said_the_page_is_harmless(prompt, answer):
    assert_harmless(transcript_page(a_transcript(answer, prompt)))


def test_markup_in_names_settings_and_metrics_stays_text(tmp_path):
    folder = write_run(tmp_path / "<b>run", [row(0, 1, 0.5, **{f"env/all/{EVIL}": 1.0})])
    (folder / "config.json").write_text('{"model_name": "<script>alert(4)</script>"}')

    page = run_page(folder)

    assert_harmless(page)
    assert "<b>run" in "".join(Tags(page).text)


def test_unseen_characters_are_shown_by_their_numbers():
    assert visible("a\u202eb\u200bc\x1b[2J\r") == "a[U+202E]b[U+200B]c[U+001B][2J[U+000D]"
    assert visible("tab\tline\nend é 数") == "tab\tline\nend é 数"
    assert "[U+D800]" in transcript_page(a_transcript("\ud800"))


def test_a_value_that_a_template_misses_is_an_error():
    with pytest.raises(Exception, match="shown"):
        render("transcripts.html.j2")


def test_tokens_are_shaded_by_advantage_and_by_surprise():
    groups = [
        TranscriptGroup([], played([said("Q", "a")], [said("Q", "b")]), [0.5, -0.25]),
        TranscriptGroup([], played([said("Q", "c")]), None),
    ]
    first, second = shown(transcribe("train", 3, groups, CharTokenizer())).groups

    tokens = [one.turns[0].tokens[0] for one in (*first.episodes, *second.episodes)]
    # half as likely as certain: ln 2 of the 6 nats that are shaded in full
    assert [(t.kind, t.style) for t in tokens] == [
        ("t up", "--a:1.00;--s:0.12"), ("t down", "--a:0.50;--s:0.12"), ("t", "--s:0.12"),
    ]  # fmt: skip
    assert tokens[0].numbers == "token 97, logprob -0.693, probability 0.500"


def test_a_prompt_that_a_group_shares_is_shown_once():
    alike = TranscriptGroup([], played([said("Why?", "a")], [said("Why?", "b")]))
    unlike = TranscriptGroup([], played([said("Who?", "a")], [said("When?", "b")]))

    text = "".join(
        Tags(transcript_page(transcribe("train", 0, [alike, unlike], CharTokenizer()))).text
    )

    assert [text.count(prompt) for prompt in ("Why?", "Who?", "When?")] == [1, 1, 1]


def test_a_run_page_has_curves_with_words_for_who_cannot_see_them(tmp_path):
    page = run_page(a_run(tmp_path / "run"))

    tags = Tags(page)
    drawings = [
        attributes for tag, attributes in tags.elements if tag == "svg" and "role" in attributes
    ]
    ids = [attributes["id"] for _, attributes in tags.elements if "id" in attributes]
    assert len(drawings) >= 8
    assert len(ids) == len(set(ids))
    assert all(set((one["aria-labelledby"] or "").split()) <= set(ids) for one in drawings)
    text = "".join(tags.text)
    for title in (
        "Mean reward per episode",
        "Entropy",
        "KL to the reference",
        "Tokens per turn",
        "Health",
    ):
        assert title in text
    assert "prefers-color-scheme: dark" in page


def test_of_troubles_that_never_came_no_chart_is_drawn(tmp_path):
    cut = {"health/episodes_cut_by_length": 0.5, "health/episodes_timed_out": 0.0}
    page = run_page(write_run(tmp_path, [row(0, 1, 0.5, **cut, **{"health/groups_failed": 0})]))

    text = "".join(Tags(page).text)
    assert "Episodes that were spoilt" in text
    assert "Groups that failed" not in text


def test_rewards_are_drawn_by_tag_and_metrics_of_the_users_own_by_name(tmp_path):
    own = {"env/easy/reward/total": 0.9, "env/hard/reward/total": 0.1, "env/all/total_cost": 3.0}
    page = run_page(write_run(tmp_path, [row(0, 1, 0.5, **own)]))

    text = "".join(Tags(page).text)
    assert "Mean reward by tag" in text
    assert "easy: 0.9 at step 0. hard: 0.1 at step 0." in text
    assert "total_cost: 3 at step 0." in text


def test_a_run_page_shows_transcripts_from_start_to_end(tmp_path):
    folder = a_run(tmp_path / "run")
    group = TranscriptGroup([], played(*[[said("Q", str(i))] for i in range(10)]), [0.0] * 10)
    for step in range(7):
        write_transcripts(folder, "train", step, [group], CharTokenizer())
    (folder / "iteration_000003" / "train_logtree.json").write_text(
        "{ha"
    )  # unreadable: passed over

    text = "".join(Tags(run_page(folder)).text)

    assert [step for step in range(7) if f"train, step {step}" in text] == [0, 6]
    assert "2 more are in the folder" in text


def test_a_run_that_goes_on_can_be_looked_at(tmp_path):
    folder = a_run(tmp_path / "run", steps=1, finished=False)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1, "env/all')

    record = read_run(folder)

    assert len(record.rows) == 1
    assert not record.is_finished
    assert "not finished" in run_page(folder)


def test_the_row_of_a_final_evaluation_draws_no_reward_twice(tmp_path):
    last = {"step": 2, "test/env/all/reward/total": 0.9, "env/all/reward/total": 0.5}
    folder = write_run(tmp_path, [row(0, 2, 0.25), row(1, 2, 0.5), last])

    record = read_run(folder)

    assert record.series("env/all/reward/total") == [(0, 0.25), (1, 0.5)]
    assert record.series("test/env/all/reward/total") == [(2, 0.9)]
    assert record.last == last


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(DataFormatError, match=r"no metrics\.jsonl"):
        read_run(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\nnonsense\n{"step": 2}\n')
    with pytest.raises(DataFormatError, match="line 2"):
        read_run(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n')
    (tmp_path / "config.json").write_text("{ha")
    with pytest.raises(DataFormatError, match=r"config\.json is no JSON"):
        read_run(tmp_path)


def test_settings_are_flat_and_without_what_is_unset():
    assert list(flat_settings({"a": {"b": 1, "c": None}, "d": "x", "e": [1, 2]})) == [
        ("a.b", "1"), ("d", "x"), ("e", "[1, 2]"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "–"),
        (3, "3"),
        (0.5, "0.500"),
        (0.00001, "1.0e-05"),
        (61440, "61,440"),
        (True, "True"),
    ],
)
def test_numbers_are_written_for_people(value, written):
    assert number(value) == written


def test_the_command_shows_a_run_and_writes_its_page(tmp_path):
    folder = a_run(tmp_path / "run")

    done = CliRunner().invoke(
        main, ["runs", "show", str(folder), "--html", str(tmp_path / "p.html")]
    )

    assert done.exit_code == 0, done.output
    assert done.output.startswith("tiny, 24 steps, finished\nSTEP  REWARD")
    assert len(re.findall(r"^\d+ ", done.output, re.MULTILINE)) == 12
    assert "Mean reward per episode" in (tmp_path / "p.html").read_text()


def test_the_command_refuses_another_folder_in_one_line(tmp_path):
    refused = CliRunner().invoke(main, ["runs", "show", str(tmp_path)])

    assert refused.exit_code == 1
    assert len(refused.stderr.strip().splitlines()) == 1
    assert "no run folder" in refused.stderr
