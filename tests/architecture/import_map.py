"""The floor plan of the house as data: who may import whom, and a search for who does otherwise."""

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"

SURFACE = {"mint", "mint.types", "mint.tinker", "mint.mint"}
"""The only modules of the room "mint"; everything else has a room of its own."""

MAY_IMPORT: Mapping[str, set[str]] = {
    # what users type: names only
    "mint": {"mint.client", "mint.core", "tinker"},
    # the same objects as in mint.recipe, under the names that other pages use
    "mint.renderers": {"mint.recipe"},
    "mint.completers": {"mint.recipe"},
    "mint.mint.renderers": {"mint.recipe"},
    # the bottom: values, and bytes <-> values
    "mint.core": {"numpy"},
    "mint.wire": {"mint.core", "numpy", "pydantic", "google", "zstandard"},
    # how the SDK works. transformers only inside get_tokenizer()
    "mint.client": {
        "mint.core", "mint.wire",
        "tinker", "httpx", "numpy", "pydantic", "filelock", "transformers",
    },
    # algorithms over the public API. torch only inside doors that take or return its tensors,
    # transformers and datasets only inside functions, as what only graders need
    "mint.recipe": {
        "mint", "mint.core", "tinker", "numpy", "chz", "rich", "jinja2", "pydantic",
        "tokenizers", "transformers", "huggingface_hub", "torch", "renderers", "wandb",
        "regex", "jsonschema", "referencing", "math_verify", "rapidfuzz", "sacrebleu",
    },
    # the short way in: stands on the recipes, and may no more than they
    "mint.rl_core": {"mint", "mint.core", "mint.recipe", "tinker", "numpy", "chz"},
    # compute
    "mint.engine": {"mint.core"},
    "mint.torch_engine": {
        "mint.engine", "mint.core",
        "numpy", "torch", "transformers", "tokenizers", "safetensors", "huggingface_hub",
        "gguf", "filelock", "psutil", "platformdirs",
    },
    # adapters and models as files, merged and computed by others' code, where their users are
    "mint.weights": {
        "mint.core", "mint.torch_engine", "torch", "transformers", "safetensors", "peft",
    },
    # the server, from the pure to the rim
    "mint.server": set(),
    "mint.server.logs": set(),
    "mint.server.settings": {"mint.core"},
    "mint.server.settings_sources": {"mint.core", "mint.server.settings"},
    # the rows as frozen values: no SQL in them, so whoever decides or answers may read them
    "mint.server.store.records": {"mint.core"},
    "mint.server.scheduler": {"mint.core", "mint.server.store.records"},
    "mint.server.store": {
        "mint.core", "mint.server.store.records", "sqlalchemy", "alembic", "filelock",
    },
    "mint.server.auth": {"mint.core"},
    # puts a first key into the store: part of starting up, lives beside the keys it makes
    "mint.server.auth.local": {"mint.core", "mint.server.auth"},
    "mint.server.channel": {"mint.core", "mint.server.settings", "psutil", "filelock"},
    # wire: operations and results lie in the store as bytes
    "mint.server.service": {
        "mint.core", "mint.wire", "mint.server.store", "mint.server.store.records",
        "mint.server.auth", "mint.server.scheduler",
    },
    "mint.server.worker": {
        "mint.core", "mint.engine", "mint.wire", "mint.server.store", "mint.server.store.records",
        "mint.server.scheduler", "mint.server.channel",
    },
    "mint.server.http": {
        "mint.core", "mint.wire", "mint.server.store.records", "mint.server.service",
        "mint.server.auth", "fastapi", "starlette", "pydantic",
        "prometheus_client", "psutil",
    },
    # composition of the engine process
    "mint.server.worker.build": {"mint.server.settings", "mint.engine", "mint.torch_engine", "torch"},
    "mint.server.worker.main": {
        "mint.core", "mint.engine", "mint.server.settings", "mint.server.logs",
        "mint.server.scheduler", "mint.server.store", "mint.server.channel", "mint.server.worker",
        "filelock",
    },
    # composition of the API process
    "mint.server.app": {
        "mint.server.settings", "mint.server.store", "mint.server.auth", "mint.server.service",
        "mint.server.channel", "mint.server.http", "fastapi", "starlette",
    },
    "mint.server.presence": {"mint.core", "mint.server.settings", "mint.server.channel"},
    "mint.server.idle": {"mint.server.store", "fastapi"},
    "mint.server.process": {
        "mint.core", "mint.server.settings", "mint.server.logs", "mint.server.presence",
        "mint.server.idle", "mint.server.auth.local", "mint.server.store", "mint.server.channel",
        "mint.server.app", "mint.server.worker",
        "uvicorn", "fastapi", "filelock",
    },
    # `keys` works on a data folder whose server need not run
    "mint.cli": {
        "mint", "mint.client", "mint.core", "mint.weights", "mint.recipe",
        "mint.server.settings_sources",
        "mint.server.process", "mint.server.channel", "tokenizers",
        "click", "tinker",
    },
    "mint.cli.keys": {
        "mint.cli", "mint.core", "mint.server.settings_sources", "mint.server.auth",
        "mint.server.store",
        "mint.server.store.records", "click",
    },
}  # fmt: skip
"""Room -> what it may import. Standard library goes without saying; so does a room's own inside.
A longer name is a room inside a room, and not part of it."""

EVERYTHING = {*MAY_IMPORT}.union(*MAY_IMPORT.values())
MAY_IMPORT = {**MAY_IMPORT, "mint.testing": EVERYTHING}  # and nothing may import it


def room(module: str, rooms: Mapping[str, object] = MAY_IMPORT) -> str | None:
    """The innermost room that a module lies in."""
    around = [r for r in rooms if f"{module}.".startswith(f"{r}.")]
    return max(around, key=len, default=None)


def imports(root: Path) -> Iterator[tuple[str, int, str]]:
    """Every import below `root` as (importing module, line, imported name).

    Also those inside functions and under TYPE_CHECKING: a hidden arrow is still an arrow. Our
    imports are absolute (ruff TID252).
    """
    for path in sorted(root.rglob("*.py")):
        here = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for name in names:
                yield here, node.lineno, name


def stray_imports(root: Path, may_import: Mapping[str, set[str]]) -> list[str]:
    """Imports that the floor plan does not allow, as "module:line a -> b".

    A package from outside is a room of its own; the standard library is not.
    """
    found = []
    for here, line, name in imports(root):
        a = room(here, may_import)
        top = name.partition(".")[0]
        outside = top != "mint" and top not in sys.stdlib_module_names
        b = top if outside else room(name, may_import)
        if a and b and a != b and b not in may_import[a]:
            found.append(f"{here}:{line} {a} -> {b}")
    return found
