"""ModelRegistry: which base models there are, and where their files lie."""

from collections.abc import Sequence
from pathlib import Path

from mint.core.errors import ConfigError, UnknownModelError
from mint.core.models import ServedModel
from mint.engine.protocol import Doing, OnProgress, tell_nobody
from mint.torch_engine.models import embedded
from mint.torch_engine.models.files import (
    ModelFiles,
    check_whole,
    count_parameters,
    is_model_folder,
    read_config,
)
from mint.torch_engine.models.hub import Hub
from mint.torch_engine.models.support import check_supported

__all__ = ["ModelFiles", "ModelRegistry", "parse_spec"]


class ModelRegistry:
    """The base models one engine offers.

    A name is looked for in this order, and the first hit wins: the path given with it, a folder of
    that name, the embedded model, the hub's cache, the hub. Found files are remembered.

    Args:
        models: "NAME" or "NAME=PATH", each once.
        on_demand: also find models that are not listed, when first asked for.
        hub: where unlisted places end; a test puts its own here.
        on_progress: told of conversions and downloads.
    """

    def __init__(
        self,
        models: Sequence[str],
        on_demand: bool = False,
        *,
        hub: Hub | None = None,
        on_progress: OnProgress = tell_nobody,
    ) -> None:
        self._paths: dict[str, Path | None] = {}
        for spec in models:
            name, path = parse_spec(spec)
            if name in self._paths:
                raise ConfigError(f"--model {spec}: {name} is listed twice. List it once.")
            self._paths[name] = path
        if not self._paths and not on_demand:
            raise ConfigError(
                "No base model is listed. Start with --model NAME or --model NAME=/path/to/folder, "
                f"for instance --model {embedded.NAME}"
            )
        self._on_demand = on_demand
        self._hub = hub or Hub()
        self._on_progress = on_progress
        self._found: dict[str, ModelFiles] = {}

    def names(self) -> tuple[str, ...]:
        """The listed models in order, then those found on demand since."""
        return tuple(dict.fromkeys([*self._paths, *self._found]))

    def check(self) -> tuple[ModelFiles, ...]:
        """Find every listed model now, so that an unknown one is refused at start.

        This fetches or converts what has to be; weights are not loaded into memory.

        Raises: as `resolve`.
        """
        return tuple(self.resolve(name) for name in self._paths)

    def resolve(self, name: str) -> ModelFiles:
        """Find the files of a base model.

        Raises:
            UnknownModelError: not listed and not on demand, or found nowhere; says what there is
                and how to get the rest.
            UnsupportedError: our attention would compute it wrongly.
            ConfigError: the folder lacks a part of a model.
        """
        if name in self._found:
            return self._found[name]
        if name not in self._paths and not self._on_demand:
            raise UnknownModelError(
                f"base model {name!r} is not served here. Served: {', '.join(self.names())}. "
                f"Start the server with --model {name} to add it."
            )
        try:
            files = self._find(name)
        finally:
            self._on_progress(None)
        check_whole(files.folder)
        check_supported(read_config(files.folder), name)
        self._found[name] = files
        return files

    def describe(self, name: str, device: str, dtype: str) -> ServedModel:
        """What clients are told about a model; reads headers, not weights.

        Raises: as `resolve`.
        """
        files = self.resolve(name)
        config = read_config(files.folder)
        for field in ("vocab_size", "max_position_embeddings"):
            if not isinstance(config.get(field), int):
                raise ConfigError(f"{files.folder}/config.json has no {field}; write it there.")
        return ServedModel(
            name=name,
            architecture=config["model_type"],
            vocab_size=config["vocab_size"],
            max_context=config["max_position_embeddings"],
            parameters=count_parameters(files.folder),
            dtype=dtype,
            device=device,
            tokenizer_folder=str(files.folder),
        )

    def _find(self, name: str) -> ModelFiles:
        if path := self._paths.get(name):
            if not is_model_folder(path):
                raise UnknownModelError(
                    f"--model {name}={path}: no model there. Give a folder with config.json, "
                    "safetensors and tokenizer.json."
                )
            return ModelFiles(name, path.resolve(), "folder")
        if is_model_folder(Path(name).expanduser()):
            return ModelFiles(name, Path(name).expanduser().resolve(), "folder")
        if embedded.is_embedded(name) and (source := embedded.package_file()):
            return ModelFiles(name, embedded.provide(source, self._on_progress), "embedded")
        repo = embedded.NAME if embedded.is_embedded(name) else name
        if cached := self._hub.cached(repo):
            return ModelFiles(name, cached, "hub cache")
        self._on_progress(Doing(f"fetching base model {repo} from the hub"))
        try:
            return ModelFiles(name, self._hub.fetch(repo), "hub")
        except UnknownModelError as error:
            raise UnknownModelError(self._not_found(name, str(error))) from error

    def _not_found(self, name: str, hub_says: str) -> str:
        installed = embedded.package_file() is not None
        known = [*self._found, *([embedded.NAME] if installed else [])]
        touched = self._hub.cached_names()
        cached = [other for other in touched if self._hub.cached(other)]
        in_cache = "only a part of it is" if name in touched else "not"
        here = list(dict.fromkeys([*known, *cached]))
        ways = [f"give its folder (--model {name}=/path/to/folder)"]
        if embedded.is_embedded(name) or not installed:
            ways.append(f"install the embedded model {embedded.NAME} ({embedded.INSTALL})")
        ways.append("or let this machine reach the hub (HF_ENDPOINT names a mirror)")
        return (
            f"base model {name!r} was not found: no folder of that name; {in_cache} in the hub's cache; "
            f"{hub_says}. Available now without a network: {', '.join(here) or 'none'}. "
            f"To get it: {', '.join(ways)}."
        )


def parse_spec(spec: str) -> tuple[str, Path | None]:
    """Read "NAME" or "NAME=PATH".

    Raises:
        ConfigError: a part is empty.
    """
    name, sign, path = spec.partition("=")
    if not name.strip() or (sign and not path.strip()):
        raise ConfigError(f"--model {spec!r}: write NAME or NAME=/path/to/folder.")
    return name.strip(), Path(path.strip()).expanduser() if sign else None
