"""Names of files are checked before anything is written."""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.recipe.sandbox.programs import python

from mint.recipe.exceptions import DataValidationError
from mint.recipe.sandbox import PYTHON, Limits, Sandbox
from mint.recipe.sandbox.program_files import MOST_FILES, checked_files


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../x", "leads out"), ("a/../../x", "leads out"), ("..", "leads out"), ("/etc/passwd", "absolute"),
        ("//x", "absolute"), ("", "empty"), (".", "empty"), ("a//b", "empty"), ("a/", "empty"), ("./a", "empty"),
        ("a\0b", "NUL"), ("x" * 256, "longer"), ("/".join(["x" * 100] * 11), "longer"), ("\udc80", "UTF-8"),
    ],
)  # fmt: skip
async def test_a_name_that_leads_elsewhere_is_refused(sandbox: Sandbox, name: str, why: str):
    with pytest.raises(DataValidationError, match=why):
        await sandbox.run({name: "x"}, ("true",))


def test_other_things_than_names_and_contents_are_refused():
    for files in ({1: "x"}, {"a": 1}, {"a": None}):
        wrong: Any = files
        with pytest.raises(DataValidationError):
            checked_files(wrong, Limits())


def test_a_file_that_is_also_a_folder_is_refused():
    with pytest.raises(DataValidationError, match="'a' is a file, and a folder in 'a/b'"):
        checked_files({"a/b": "", "a": ""}, Limits())


def test_too_many_or_too_large_files_are_refused():
    with pytest.raises(DataValidationError, match="201 files"):
        checked_files({str(i): "" for i in range(MOST_FILES + 1)}, Limits())
    with pytest.raises(DataValidationError, match="disk_bytes"):
        checked_files({"a": b"x" * 11}, Limits(disk_bytes=10))


async def test_as_many_files_as_are_allowed_arrive_whole(sandbox: Sandbox):
    files: dict[str, str | bytes] = {
        f"d{i % 7}/f{i} ü": bytes([i]) * 1000 for i in range(MOST_FILES - 1)
    }
    source = """
import pathlib
for path in sorted(pathlib.Path(".").glob("d*/*"), key=lambda p: int(p.name[1:-2])):
    content = path.read_bytes()
    assert content == content[:1] * 1000, path
    print(content[0], end=" ")
"""
    result = await sandbox.run({**files, "main.py": source}, (*PYTHON, "main.py"))
    assert result.stdout == "".join(f"{i} " for i in range(MOST_FILES - 1)), result


async def test_a_program_may_change_its_own_files_and_folders(sandbox: Sandbox):
    files = {
        "main.py": "open('d/a', 'a').write('2'); open('d/b', 'w'); print(open('d/a').read())",
        "d/a": "1",
    }
    assert (await sandbox.run(files, (*PYTHON, "main.py"))).stdout == "12\n"


async def test_links_that_a_program_makes_lead_its_removal_nowhere(
    sandbox: Sandbox, tmp_path: Path
):
    kept = tmp_path / "folder" / "kept"
    kept.parent.mkdir()
    kept.write_text("kept")
    source = f"""
    import os
    os.symlink({str(kept.parent)!r}, "folder")
    os.symlink({str(kept)!r}, "file")
    os.symlink("..", "up")
    os.symlink("loop", "loop")
    os.unlink("main.py")
    os.symlink({str(kept)!r}, "main.py")
    print("linked")
    """
    assert (await python(sandbox, source)).stdout == "linked\n"
    assert kept.read_text() == "kept"
    assert os.listdir(tmp_path) == ["folder"]
    assert os.listdir(kept.parent) == ["kept"]


async def test_folders_a_thousand_deep_and_without_any_rights_are_removed(
    sandbox: Sandbox, place: Path
):
    source = """
    import os
    home = os.getcwd()
    for i in range(1050):
        os.mkdir("d")
        os.chdir("d")
    os.chdir(home)
    os.mkdir("shut"); os.mkdir("shut/in"); open("shut/in/f", "w").close()
    os.chmod("shut/in", 0); os.chmod("shut", 0); os.chmod(home, 0)
    """
    result = await python(sandbox, source, Limits(wall_s=60.0, files=3000))
    assert result.succeeded, result
    assert os.listdir(place) == []
