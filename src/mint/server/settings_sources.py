"""From flags, environment and a TOML file to the one ServerSettings.

Every setting has one name. `max_sequences` is the flag `--max-sequences`, the variable
`MINT_MAX_SEQUENCES` and the key `max_sequences` of the file. A flag wins over the environment, the
environment over the file, the file over the default.
"""

import ast
import difflib
import functools
import inspect
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from mint.core.errors import ConfigError
from mint.server.settings import ServerSettings, default_data, is_loopback

_INTERNAL = ("engine",)
"""Names code: nothing that a file or the environment should be able to do."""
_FLAGS: Mapping[str, str] = MappingProxyType(
    {"models": "--model", "exit_when_idle_s": "--exit-when-idle"}
)
"""Where the flag is not the name itself: --model is given once for each."""
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One field of ServerSettings, and how it is told."""

    name: str
    kind: type
    """bool, int, float, str, Path, or tuple for several texts."""
    default: Any
    """MISSING: there is none in the class (`data`, see default_data)."""
    meaning: str
    """What the class says below the field."""

    @property
    def flag(self) -> str:
        return _FLAGS.get(self.name, f"--{self.name.replace('_', '-')}")

    @property
    def variable(self) -> str:
        return f"MINT_{self.name.upper()}"


@functools.cache
def all_settings() -> tuple[Setting, ...]:
    """What can be set, in the order of the class."""
    hints, meanings = get_type_hints(ServerSettings), _meanings()
    return tuple(
        Setting(
            name=field.name,
            kind=_kind(hints[field.name]),
            default=field.default,
            meaning=meanings[field.name],
        )
        for field in fields(ServerSettings)
        if field.name not in _INTERNAL
    )


def read_settings(flags: Mapping[str, Any], environ: Mapping[str, str]) -> ServerSettings:
    """Settle what a server is told.

    Without a base model, a server that only its own machine can reach offers what clients name.

    Args:
        flags: by setting's name; None and () are not given.

    Raises:
        ConfigError: an unknown name, a value of the wrong kind, or settings that contradict.
    """
    told = {"data": default_data(), **gather(flags, environ)}
    told["data"] = told["data"].expanduser().absolute()
    if not told.get("models") and is_loopback(told.get("host", ServerSettings.host)):
        told.setdefault("on_demand", True)
    return ServerSettings(**told)


def read_place(flags: Mapping[str, Any], environ: Mapping[str, str]) -> ServerSettings:
    """The same for a command that works beside a server: it needs the place, and serves nothing.

    Raises:
        ConfigError: as `read_settings`.
    """
    told = gather(flags, environ)
    place = {name: told[name] for name in ("data", "database") if name in told}
    return read_settings({**place, "on_demand": True}, {})


def gather(flags: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """The settings that were told, by name, each from its strongest source."""
    by_flag = {name: value for name, value in flags.items() if value not in (None, ())}
    by_variable = {
        setting.name: _from_text(setting, text)
        for setting in all_settings()
        if (text := environ.get(setting.variable, "").strip())
    }
    told = {**by_variable, **by_flag}
    config = told.get("config")
    return {**read_file(config), **told} if config else told


def read_file(path: Path) -> dict[str, Any]:
    """The settings of a TOML file. Relative folders in it are relative to the file's own.

    Raises:
        ConfigError: it cannot be read, or has a name or a value that is none of ours.
    """
    path = path.expanduser().absolute()
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"the settings file {path} cannot be read: {error}") from error
    known = {setting.name: setting for setting in all_settings() if setting.name != "config"}
    if unknown := sorted(set(content) - set(known)):
        near = difflib.get_close_matches(unknown[0], known, n=1)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(
            f"{path}: unknown settings {', '.join(unknown)}.{meant} Known: {', '.join(known)}."
        )
    return {name: _from_toml(path, known[name], value) for name, value in content.items()}


# ------------------------------------------------------------------ values


def _from_text(setting: Setting, text: str) -> Any:
    try:
        if setting.kind is tuple:
            return tuple(text.split())
        if setting.kind is bool:
            return {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}[text.lower()]
        return setting.kind(text)
    except (ValueError, KeyError):
        raise ConfigError(f"{setting.variable}={text!r}: give {_words(setting.kind)}.") from None


def _from_toml(path: Path, setting: Setting, value: Any) -> Any:
    kind = setting.kind
    if kind is tuple and isinstance(value, list) and all(isinstance(part, str) for part in value):
        return tuple(_beside(path, entry) for entry in value)
    if kind is Path and isinstance(value, str):
        return path.parent / Path(value).expanduser()
    if kind is float and type(value) is int:
        return float(value)
    if kind not in (tuple, Path) and type(value) is kind:
        return value
    raise ConfigError(f"{path}: {setting.name} = {value!r}: give {_words(kind)}.")


def _beside(path: Path, model: str) -> str:
    """ "NAME=FOLDER" with a relative folder taken from the file's own."""
    name, given, folder = model.partition("=")
    return f"{name}={path.parent / Path(folder).expanduser()}" if given and folder else model


def _words(kind: type) -> str:
    return {
        bool: "true or false", int: "a whole number", float: "a number", tuple: "a list of texts",
    }.get(kind, "a text")  # fmt: skip


def _kind(hint: Any) -> type:
    """The type of a field without "or None"."""
    if isinstance(hint, UnionType):
        [hint] = [part for part in get_args(hint) if part is not type(None)]
    return get_origin(hint) or hint


def _meanings() -> dict[str, str]:
    """The text that stands below each field of the class."""
    [tree] = ast.parse(inspect.getsource(ServerSettings)).body
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(below.value.value).split())
    return found


def shown_default(setting: Setting) -> str:
    """The default, for people; empty if a setting is off or measured by itself."""
    if setting.default is MISSING:
        return "~/.mint/server"
    if setting.default is None or setting.default == ():
        return ""
    if isinstance(setting.default, bool):
        return "on" if setting.default else "off"
    return f"{setting.default:g}" if isinstance(setting.default, float) else str(setting.default)
