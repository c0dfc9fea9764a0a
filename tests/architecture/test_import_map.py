"""The house is built as drawn."""

import re
from pathlib import Path

import pytest
from tests.architecture.import_map import MAY_IMPORT, SOURCE, SURFACE, imports, room, stray_imports


def modules() -> list[str]:
    return [
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted(SOURCE.rglob("*.py"))
    ]


def test_no_import_leaves_the_floor_plan():
    assert stray_imports(SOURCE, MAY_IMPORT) == []


def test_every_module_lies_in_a_room_of_the_plan():
    assert [
        module
        for module in modules()
        if (room(module) in (None, "mint") and module not in SURFACE)
        or (room(module) == "mint.server" and module != "mint.server")
    ] == []


def test_every_room_of_the_plan_exists():
    assert [planned for planned in MAY_IMPORT if planned not in modules()] == []


def test_the_plan_has_no_circles():
    """Arrows only go down: taking away rooms that need no other empties the house."""
    left = {name: {b for b in needs if b in MAY_IMPORT} for name, needs in MAY_IMPORT.items()}
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    assert left == {}


def test_upstreams_inner_modules_are_imported_in_one_file_only():
    inner = re.compile(r"tinker\.(lib|resources|proto|_[^_])")
    assert {here for here, _, name in imports(SOURCE) if inner.match(name)} == {
        "mint.client.compat"
    }


@pytest.mark.parametrize(
    "line",
    [
        "import torch",
        "from torch.nn import Linear",
        "import mint.low.other, mint.high.part",
        "from mint import high",
        "from mint.high import part",
        "def f():\n    import mint.high.part",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from mint.high import part",
    ],
)
def test_a_stray_import_is_found_wherever_it_hides(tmp_path: Path, line: str):
    plan = {"mint.low": {"numpy"}, "mint.high": {"mint.low", "torch"}}
    file = tmp_path / "mint" / "low" / "part.py"
    file.parent.mkdir(parents=True)
    file.write_text("import os\nimport numpy\nimport mint.low.other\n")
    assert stray_imports(tmp_path, plan) == []

    file.write_text(line)

    (found,) = stray_imports(tmp_path, plan)
    assert found.startswith("mint.low.part:")
    assert found.endswith(("mint.low -> mint.high", "mint.low -> torch"))
