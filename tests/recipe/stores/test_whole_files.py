from mint.recipe.stores.whole_files import write_whole


def test_a_file_is_replaced_at_once(tmp_path):
    write_whole(tmp_path / "new" / "page.html", "one")
    write_whole(tmp_path / "new" / "page.html", "two")

    assert [path.name for path in (tmp_path / "new").iterdir()] == ["page.html"]
    assert (tmp_path / "new" / "page.html").read_text() == "two"
