"""The fields of an RL run's config, for a table of the docs: read from where they are declared."""

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from pathlib import Path

from mint.recipe.rl import config

CLASSES = ("Config", "KLReferenceConfig", "AsyncConfig", "StreamMinibatchConfig")

WORDS = {
    "KLReferenceConfig.base_model": "Its name on the server.",
    "lora_rank": "Rank of a new adapter.",
    "loss_fn": "The server's loss that is trained; not looked at here.",
    "loss_fn_config": "Its keys. A `temperature` given here takes the place of the run's.",
    "kl_penalty_coef": "c of the penalty; 0: none.",
    "kl_discount_factor": "Gamma of the penalty: above 0, a token also answers for the distance of those after it.",
    "termination": "How an episode that a limit ended is graded; None: as its env says.",
    "evaluator_builders": "Called once each; a test set of the data set's builder needs none.",
    "num_epochs": "How often the run goes through the data set.",
    "max_steps": "The run ends there; None: with the data set.",
    "async_config": "Chooses the asynchronous schedule.",
    "stream_minibatch_config": "Chooses the streaming schedule.",
    "rolling_ttl_seconds": "How long the server keeps a rolling one that nothing replaced.",
    "wandb_project": "Also log to Weights & Biases, into this project; None: no tracker.",
    "wandb_name": "The run's name there.",
}
"""What fields mean whose declaration leaves it to their name."""

_SHORTER = {
    "_fresh_folder": "a new folder below `runs`",
    "list": "`[]`",
}
"""Factories of defaults, as a reader would say it."""


@dataclass(frozen=True)
class Field:
    """One field as it is declared; `default` is ready for a page, and None where one has to be given."""

    owner: str
    name: str
    kind: str
    default: str | None
    docstring: str | None

    @property
    def meaning(self) -> str:
        return self.docstring or WORDS[self.full_name]

    @property
    def full_name(self) -> str:
        return self.name if self.owner == "Config" else f"{self.owner}.{self.name}"


def fields() -> Iterator[Field]:
    """Every field of a config and of the configs within it, in order of declaration."""
    tree = ast.parse(Path(config.__file__).read_text())
    declared = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for owner in CLASSES:
        body = declared[owner].body
        for node, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                name = node.target.id
                kind, default = ast.unparse(node.annotation), _default(node.value)
                yield Field(owner, name, kind, default, _docstring(after))


def table(say: Callable[[str], str]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Heads and rows."""
    heads = ("field", "type", "default", "meaning")
    rows = [
        (
            f"`{one.full_name}`",
            f"`{one.kind}`".replace("|", "\\|"),
            say("required") if one.default is None else say(one.default),
            say(one.meaning),
        )
        for one in fields()
    ]
    return [say(head) for head in heads], rows


def _docstring(node: ast.stmt | None) -> str | None:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return " ".join(cleandoc(str(node.value.value)).split())
    return None


def _default(value: ast.expr | None) -> str | None:
    if not isinstance(value, ast.Call):
        return None if value is None else f"`{ast.unparse(value)}`"
    [factory] = [word.value for word in value.keywords if word.arg == "default_factory"]
    return _SHORTER[ast.unparse(factory)]
