"""`import mint.recipe` is light and makes every public name reachable without further imports."""

import importlib

import pytest
from tests.architecture.test_light import HEAVY, run

import mint
import mint.mint as mintx
from mint import recipe

MODULES = (
    "rl.types", "rl.message_env", "rl.problem_env", "rl.rollouts", "rl.rollout_runner",
    "rl.rollout_limits", "rl.rollout_strategy", "rl.rollout_presets", "rl.rollout_logging",
    "rl.data_processing", "rl.metrics", "rl.metric_util", "rl.train", "rl.dataset_utils",
    "rl.interleaved", "completers", "eval.evaluators", "renderers", "renderers.base",
    "tokenizer_utils", "model_info", "hyperparam_utils", "cli_utils", "checkpoint_utils",
    "supervised.common", "supervised.data", "utils.ml_log", "utils.lr_scheduling",
    "utils.misc_utils", "exceptions", "grading",
)  # fmt: skip
"""Module paths that code from elsewhere imports."""

WITHOUT_TORCH = """
import sys
from importlib.machinery import PathFinder

class Light(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers", "datasets"}:
            return None
        return super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Light
"""


def test_importing_the_recipes_loads_no_package_of_any_size():
    loaded = run(
        """
        import sys, mint.recipe
        dir(mint.recipe)
        print(*[name for name in sys.argv[1:] if name in sys.modules])
        """,
        *HEAVY, "datasets", "jinja2", "rich", "chz",
    )  # fmt: skip
    assert loaded == ""


def test_every_module_works_where_torch_transformers_and_datasets_are_absent():
    script = """
import importlib, sys
for path in sys.argv[1:]:
    importlib.import_module("mint.recipe." + path)
import mint.renderers, mint.completers, mint.mint.renderers
from mint.recipe.renderers import get_renderer
sys.path.insert(0, ".")
from tests.recipe.tokens import ByteTokenizer
talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
for name in ("role_colon", "llama3", "qwen3", "qwen3_5"):
    get_renderer(name, ByteTokenizer()).weighted_example(talk)
print(*[name for name in ("torch", "transformers", "datasets") if name in sys.modules])
"""
    assert run(WITHOUT_TORCH + script, *MODULES) == ""


@pytest.mark.parametrize("path", MODULES)
def test_a_module_is_reached_by_attribute(path):
    found = recipe
    for name in path.split("."):
        found = getattr(found, name)
    assert found is importlib.import_module(f"mint.recipe.{path}")


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("Message", "messages"),
        ("MessageEnv", "rl.message_env"),
        ("MessageStepResult", "rl.message_env"),
        ("EnvFromMessageEnv", "rl.message_env"),
        ("get_tokenizer", "tokenizer_utils"),
        ("get_recommended_renderer_name", "model_info"),
    ],
)
def test_names_used_most_are_on_the_package_itself(name, home):
    assert getattr(recipe, name) is getattr(importlib.import_module(f"mint.recipe.{home}"), name)
    assert name in dir(recipe)


def test_the_package_supervised_has_its_two_functions():
    assert callable(recipe.supervised.conversation_to_datum)
    assert callable(recipe.supervised.datum_from_model_input_weights)


def test_what_this_release_lacks_says_so():
    for name in ("preference", "distillation"):
        with pytest.raises(AttributeError, match="not part of this release"):
            getattr(recipe, name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = recipe.nonsense  # type: ignore[attr-defined]


def test_other_pages_names_are_the_very_same_objects():
    assert mint.recipe is recipe
    assert mint.renderers.get_renderer is recipe.renderers.get_renderer
    assert mint.renderers.Qwen3Renderer is recipe.renderers.Qwen3Renderer
    assert mint.completers.TinkerMessageCompleter is recipe.completers.TinkerMessageCompleter
    assert mintx.renderers.get_renderer is recipe.renderers.get_renderer
    assert mintx.renderers.get_recommended_renderer_name is recipe.get_recommended_renderer_name
    assert (
        mintx.renderers.datum_from_model_input_weights
        is recipe.supervised.datum_from_model_input_weights
    )
    with pytest.raises(AttributeError):
        _ = mint.renderers.nonsense  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        _ = mintx.nonsense


def test_an_error_is_also_the_builtin_that_a_caller_expects():
    errors = recipe.exceptions
    for kind, builtin in {
        errors.ConfigurationError: ValueError,
        errors.DataFormatError: ValueError,
        errors.DataValidationError: ValueError,
        errors.RendererError: ValueError,
        errors.CheckpointError: RuntimeError,
        errors.AllTrajectoriesFailedError: RuntimeError,
        errors.EvalError: RuntimeError,
    }.items():
        assert issubclass(kind, builtin)
        assert issubclass(kind, errors.RecipeError)
        assert issubclass(kind, mint.MintError)
    assert errors.TinkerCookbookError is errors.RecipeError
    assert not issubclass(errors.SamplingTurnTimeoutError, TimeoutError)
