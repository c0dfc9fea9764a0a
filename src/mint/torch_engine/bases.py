"""The base models of one engine: found by name, loaded on first use, within a memory limit."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from tokenizers import Tokenizer

from mint.core.errors import CapacityError
from mint.core.lora import LoraSpec
from mint.core.models import ServedModel
from mint.engine.protocol import Doing, OnProgress, tell_nobody
from mint.torch_engine import attention
from mint.torch_engine.admission import SamplingFigures
from mint.torch_engine.decoder import Decoder
from mint.torch_engine.decoding import Decoding
from mint.torch_engine.lora import Layout, trained_bytes
from mint.torch_engine.models.files import ModelFiles, eos_token_ids
from mint.torch_engine.models.loader import load_module, load_tokenizer, torch_dtype
from mint.torch_engine.models.registry import ModelRegistry
from mint.torch_engine.settings import EngineSettings
from mint.torch_engine.trainer import Trainer

logger = logging.getLogger(__name__)

_ROOM = 0.8
"""Share of the free memory that a limit left open takes."""


@dataclass(eq=False)
class Base:
    """One loaded base model and what is sampled from it."""

    name: str
    decoder: Decoder
    decoding: Decoding
    trainer: Trainer
    users: int = 0
    """Models in training on it, and passes under way that compare with it."""

    @property
    def nbytes(self) -> int:
        return self.decoder.nbytes + self.decoding.kv_bytes

    @property
    def idle(self) -> bool:
        return not self.users and not self.decoding.busy


class Bases:
    """Base models by name. Weights load on first use; idle ones make room for others."""

    def __init__(self, settings: EngineSettings, on_progress: OnProgress = tell_nobody) -> None:
        attention.register()
        self._settings = settings
        self._on_progress = on_progress
        self._registry = ModelRegistry(settings.models, settings.on_demand, on_progress=on_progress)
        self._loaded: dict[Path, Base] = {}  # by folder: two names of one model share its weights
        self._served: dict[str, ServedModel] = {}
        self.sampling = SamplingFigures()
        """Of all base models together, those unloaded since included."""
        for name in self._registry.names():
            self.resolve(name)
        self.limit_bytes = settings.memory_limit_bytes or int(_ROOM * free_memory_bytes())

    def served(self) -> tuple[ServedModel, ...]:
        return tuple(self._served.values())

    def loaded(self) -> tuple[Base, ...]:
        return tuple(self._loaded.values())

    def resolve(self, name: str) -> ServedModel:
        """Find a base model and describe it, without its weights.

        Raises:
            UnknownModelError: it is not on offer, or cannot be found.
            UnsupportedError: our attention would compute it wrongly.
        """
        files = self._registry.resolve(name)
        if files.name not in self._served:
            self._served[files.name] = self._registry.describe(
                files.name, self._settings.device, self._settings.dtype
            )
        return self._served[files.name]

    def get(self, name: str, held_bytes: int) -> Base:
        """The base model, loaded now if it was not. `held_bytes`: what adapters take already.

        Raises:
            UnknownModelError, UnsupportedError: as `resolve`.
            CapacityError: it does not fit into memory; the message has the numbers.
        """
        served = self.resolve(name)
        files = self._registry.resolve(name)
        if files.folder not in self._loaded:
            dtype = self._settings.dtype
            need = served.parameters * torch_dtype(dtype).itemsize
            self._make_room(
                f"base model {served.name} needs {_gib(need)} GiB as {dtype}",
                need, held_bytes, "a smaller model or dtype bfloat16",
            )  # fmt: skip
            self._on_progress(Doing(f"loading base model {served.name}"))
            try:
                self._loaded[files.folder] = self._load(served, files)
            finally:
                self._on_progress(None)
            logger.info("loaded base model %s", served.name)
        return self._loaded[files.folder]

    def admit_adapter(self, base: Base, spec: LoraSpec, held_bytes: int) -> None:
        """Make room for an adapter in training on a loaded base model.

        Raises:
            CapacityError: it does not fit into memory; the message has the numbers.
        """
        need = trained_bytes(Layout.of(spec, base.decoder.targets))
        self._make_room(
            f"a model of rank {spec.rank} on {base.name} needs {_gib(need)} GiB in training",
            need, held_bytes, "a lower rank", keep=base,
        )  # fmt: skip

    def free_bytes(self, wanted: int, held_bytes: int) -> int:
        """What is left below the memory limit, and on a GPU also free there. Cached prefixes are
        given up as far as `wanted` bytes need their room."""
        self._give_up_cached(wanted, held_bytes)
        free = max(0, self.limit_bytes - self._used(held_bytes))
        if self._settings.device.startswith("cuda"):
            free = min(free, torch.cuda.mem_get_info(self._settings.device)[0])
        return free

    def _make_room(
        self, what: str, need: int, held_bytes: int, instead: str, *, keep: Base | None = None
    ) -> None:
        """Give up cached prefixes and unload idle base models until `need` bytes are free.
        `keep`: one that has to stay."""
        self._give_up_cached(need, held_bytes)
        for folder, base in list(self._loaded.items()):
            if self._used(held_bytes) + need <= self.limit_bytes:
                return
            if base.idle and base is not keep:
                logger.info("unloading idle base model %s", base.name)
                del self._loaded[folder]
        used = self._used(held_bytes)
        if used + need > self.limit_bytes:
            raise CapacityError(
                f"{what}, but {_gib(used)} of {_gib(self.limit_bytes)} GiB are taken "
                f"(loaded: {', '.join(b.name for b in self.loaded()) or 'none'}). Use {instead}, "
                "end other models, or raise the memory limit."
            )

    def _give_up_cached(self, need: int, held_bytes: int) -> None:
        """Forget cached prefixes until `need` bytes are below the limit, or none is left."""
        for base in self.loaded():
            short = self._used(held_bytes) + need - self.limit_bytes
            if short <= 0:
                return
            base.decoding.give_up_cached(short)

    def _used(self, held_bytes: int) -> int:
        return held_bytes + sum(base.nbytes for base in self._loaded.values())

    def _load(self, served: ServedModel, files: ModelFiles) -> Base:
        settings = self._settings
        logger.info("loading base model %s (%s, %s)", served.name, settings.dtype, settings.device)
        module = load_module(
            files, dtype=settings.dtype, device=settings.device, attention=attention.ATTENTION
        )
        decoder = Decoder(module, settings.decode_threads)
        tokenizer: Tokenizer = load_tokenizer(files.folder)
        decoding = Decoding(
            decoder,
            tokenizer,
            eos_ids=frozenset(eos_token_ids(files.folder)),
            max_sequences=settings.max_sequences,
            kv_tokens=settings.kv_tokens,
            kv_layout=settings.kv_layout,
            figures=self.sampling,
        )
        return Base(served.name, decoder, decoding, Trainer(decoder))


def free_memory_bytes() -> int:
    """Memory this process may still take: the machine's, or its control group's if less."""
    free = psutil.virtual_memory().available
    for limit_file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        if os.path.exists(limit_file):
            with open(limit_file) as file:
                text = file.read().strip()
            if text.isdigit():
                free = min(free, int(text))
    return free


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f}"
