"""Names are looked for in a fixed order, and what is found nowhere is refused with what there is."""

import json
import subprocess
import sys

import pytest

from mint.core.errors import ConfigError, UnknownModelError, UnsupportedError
from mint.torch_engine.models import embedded
from mint.torch_engine.models.hub import Hub
from mint.torch_engine.models.registry import ModelRegistry, parse_spec
from mint.torch_engine.models.tiny import build_tiny


@pytest.fixture
def no_hub(tmp_path) -> Hub:
    """Nothing cached, and nobody listening."""
    return Hub(endpoint="http://127.0.0.1:9", cache=tmp_path / "hub")


def test_a_given_path_wins_over_every_other_place(tmp_path, no_hub):
    folder = build_tiny(tmp_path / "mine")
    registry = ModelRegistry([f"{embedded.NAME}={folder}"], hub=no_hub)

    found = registry.check()

    assert [(files.name, files.folder, files.origin) for files in found] == [
        (embedded.NAME, folder, "folder")
    ]


def test_a_name_that_is_a_folder_needs_no_path(tmp_path, no_hub, monkeypatch):
    build_tiny(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)

    files = ModelRegistry(["./mine"], hub=no_hub).resolve("./mine")

    assert (files.folder, files.origin) == (tmp_path / "mine", "folder")


def test_several_bases_keep_their_order_and_describe_themselves(tmp_path, no_hub):
    specs = [
        f"b={build_tiny(tmp_path / 'b', family='qwen3', max_context=64)}",
        f"a={build_tiny(tmp_path / 'a', vocab_size=300)}",
    ]
    registry = ModelRegistry(specs, hub=no_hub)

    served = [registry.describe(name, "cpu", "bfloat16") for name in registry.names()]

    assert [(m.name, m.architecture, m.vocab_size, m.max_context, m.dtype) for m in served] == [
        ("b", "qwen3", 259, 64, "bfloat16"),
        ("a", "llama", 300, 512, "bfloat16"),
    ]
    # embedding + per layer (2 norms, q, k, v, o, three of the MLP) + last norm
    layer = 2 * 32 + 2 * 32 * 32 + 2 * 16 * 32 + 3 * 64 * 32
    assert served[1].parameters == 300 * 32 + 2 * layer + 32
    assert served[0].tokenizer_folder == str(tmp_path / "b")


def test_a_model_that_is_not_listed_is_refused_with_the_list(tmp_path, no_hub):
    registry = ModelRegistry([f"tiny={build_tiny(tmp_path / 'm')}"], hub=no_hub)

    with pytest.raises(UnknownModelError, match=r"'other' is not served.*tiny.*--model other"):
        registry.resolve("other")


def test_on_demand_an_unlisted_model_joins_the_names(tmp_path, no_hub):
    folder = str(build_tiny(tmp_path / "m"))
    registry = ModelRegistry([], on_demand=True, hub=no_hub)
    assert registry.names() == ()

    registry.resolve(folder)

    assert registry.names() == (folder,)


def test_an_unknown_listed_model_is_refused_at_start_with_ways_out(no_hub, monkeypatch):
    monkeypatch.setattr(embedded, "package_file", lambda: None)
    registry = ModelRegistry(["acme/unheard-of"], hub=no_hub)

    with pytest.raises(UnknownModelError) as refused:
        registry.check()

    message = str(refused.value)
    assert "'acme/unheard-of' was not found" in message
    assert "the hub: not reachable" in message
    assert "--model acme/unheard-of=/path/to/folder" in message
    assert embedded.INSTALL in message


def test_a_path_without_a_model_is_refused(tmp_path, no_hub):
    with pytest.raises(UnknownModelError, match="no model there"):
        ModelRegistry([f"m={tmp_path}"], hub=no_hub).check()


def test_an_unsupported_model_is_refused_at_start(tmp_path, no_hub):
    folder = build_tiny(tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "mamba"}))

    with pytest.raises(UnsupportedError, match=r"base model m cannot be served: .*'mamba'"):
        ModelRegistry([f"m={folder}"], hub=no_hub).check()


def test_contradicting_lists_are_refused():
    with pytest.raises(ConfigError, match="listed twice"):
        ModelRegistry(["a", "a=/x"])
    with pytest.raises(ConfigError, match="No base model is listed"):
        ModelRegistry([])
    for spec in ("", "=/x", "a="):
        with pytest.raises(ConfigError, match="NAME=/path"):
            parse_spec(spec)


def test_describing_a_model_loads_neither_torch_nor_transformers(tmp_path):
    script = (
        "import sys\n"
        "from mint.torch_engine.models.registry import ModelRegistry\n"
        "ModelRegistry([sys.argv[1]]).describe('tiny', 'cpu', 'float32')\n"
        "print(sorted({'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)))\n"
    )
    spec = f"tiny={build_tiny(tmp_path / 'm')}"

    done = subprocess.run(
        [sys.executable, "-c", script, spec], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"
