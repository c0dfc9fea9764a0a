"""`import mint` costs nothing, and the client works where the server's packages are absent."""

import subprocess
import sys
import textwrap

import tinker

import mint

HEAVY = (
    "torch", "transformers", "tinker", "numpy", "pydantic", "httpx", "fastapi", "starlette",
    "uvicorn", "sqlalchemy", "alembic", "safetensors",
)  # fmt: skip

WITHOUT_SERVER_PACKAGES = """
import sys
from importlib.machinery import PathFinder

class Light(PathFinder):
    absent = {"torch", "fastapi", "starlette", "sqlalchemy", "uvicorn", "alembic", "safetensors",
              "psutil", "platformdirs", "gguf"}

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in cls.absent:
            return None
        return super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Light
"""
"""Run first, it makes the interpreter find none of the packages that the light client lacks."""


def run(script: str, *arguments: str) -> str:
    """The script's output in an interpreter of its own, without settings of this machine."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_mint_loads_no_package_of_any_size():
    loaded = run(
        """
        import sys, mint
        dir(mint), mint.__version__
        print(*[name for name in sys.argv[1:] if name in sys.modules])
        """,
        *HEAVY,
    )
    assert loaded == ""


def test_help_loads_neither_upstream_nor_torch():
    loaded = run(
        """
        import sys
        from mint.cli.main import main
        main(["--help"], standalone_mode=False)
        print("LOADED", *[name for name in sys.argv[1:] if name in sys.modules])
        """,
        *HEAVY,
    )
    assert "sample" in loaded
    assert loaded.endswith("LOADED")


def test_the_client_works_without_the_servers_packages():
    script = """
    import mint
    from mint import types

    datum = types.Datum(
        model_input=types.ModelInput.from_ints([1, 2]),
        loss_fn_inputs={"target_tokens": [2, 3], "weights": [1.0, 0.0]},
    )
    print(datum.loss_fn_inputs["target_tokens"].dtype)
    print(mint.SamplingParams(max_tokens=2, stop_token_ids=[3]).stop_token_ids)
    print(mint.ServiceClient(base_url="http://127.0.0.1:9", api_key="sk-x").__module__)
    try:
        mint.ServiceClient(base_url="http://127.0.0.1:9")
    except mint.ConfigError as error:
        print("MINT_API_KEY" in str(error))
    try:
        mint.ServiceClient()
    except mint.ConfigError as error:
        print("mint-rl[embedded]" in str(error))
    import mint.mint, mint.tinker
    from transformers import AutoTokenizer
    """
    answer = run(WITHOUT_SERVER_PACKAGES + textwrap.dedent(script))
    assert answer.split("\n") == ["int64", "[3]", "mint", "True", "True"]


def test_every_public_name_of_upstream_is_a_name_of_ours():
    assert set(tinker.__all__) <= set(mint.__all__)
    assert [name for name in mint.__all__ if not hasattr(mint, name)] == []
    ours = {"AdminClient", "RestClient", "SamplingClient", "ServiceClient", "TrainingClient",
            "SamplingParams", "types", "__version__"}  # fmt: skip
    assert {
        name for name in tinker.__all__ if getattr(mint, name) is not getattr(tinker, name)
    } == ours


def test_our_clients_and_parameters_are_also_upstreams():
    for name in ("RestClient", "SamplingClient", "ServiceClient", "TrainingClient"):
        assert issubclass(getattr(mint, name), getattr(tinker, name))
    assert issubclass(mint.SamplingParams, tinker.SamplingParams)
    assert mint.SamplingParams is mint.types.SamplingParams
    assert mint.types.Datum is tinker.types.Datum


def test_both_compatibility_namespaces_give_the_very_objects_of_mint():
    import mint.mint
    import mint.tinker

    assert mint.tinker.ServiceClient is mint.ServiceClient
    assert mint.tinker.types is mint.types
    assert mint.mint.ConfigError is mint.ConfigError


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(mint, "no_such_name")
