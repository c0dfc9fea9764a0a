from dataclasses import replace

from tests.recipe.pages.test_pages import EVIL, Tags, assert_harmless
from tests.recipe.run_folders import a_run, row, write_run

from mint.recipe.pages.charts import Curve, draw
from mint.recipe.pages.sweep_page import sweep_page
from mint.recipe.stores.sweep_record import Entry, State, SweepRecord


def entry(tmp_path, name: str, state: State = State.finished, **settings) -> Entry:
    return Entry(name, settings, str(tmp_path / name), "f", state)


def test_configurations_are_compared(tmp_path):
    write_run(tmp_path / "low", [row(0, 2, 0.1), row(1, 2, 0.25, **{"env/all/correct": 0.3})])
    write_run(tmp_path / "high", [row(0, 2, 0.1), row(1, 2, 0.75, **{"env/all/correct": 0.8})])
    entries = (
        entry(tmp_path, "low", kl=0.0, temp=0.7),
        entry(tmp_path, "high", kl=0.02, temp=0.7),
        entry(tmp_path, "later", State.waiting, kl=0.02, temp=1.0),
        replace(entry(tmp_path, "broken", State.failed, kl=0.0, temp=1.0), error="no room"),
    )

    page = sweep_page(SweepRecord("Grid", entries))

    text = " ".join(" ".join(Tags(page).text).split())
    assert "2 of 4" in text
    assert "Best mean reward, last step 0.750 high" in text
    assert "kl 0.0 1 0.250 kl 0.02 1 0.750" in text  # temp has one value among those with a reward
    assert "no room" in text
    assert page.count("class=best") == 1


def test_a_sweep_that_has_not_begun_has_a_page(tmp_path):
    page = sweep_page(SweepRecord("Grid", (entry(tmp_path, "a", State.waiting, kl=0.0),)))

    assert "0 of 1" in page
    assert "waiting" in page


def test_names_and_settings_and_errors_stay_text(tmp_path):
    a_run(tmp_path / "a")
    evil = Entry(EVIL, {EVIL: EVIL}, str(tmp_path / "a"), "f", State.failed, EVIL)

    assert_harmless(sweep_page(SweepRecord(EVIL, (evil,))))


def test_a_configuration_keeps_its_colour_on_every_chart():
    chart = draw("kl", [Curve("a", []), Curve("b", [(0, 1.0)])], keeps_colors=True)

    assert chart is not None
    assert [(stroke.name, stroke.color) for stroke in chart.strokes] == [("b", 1)]
