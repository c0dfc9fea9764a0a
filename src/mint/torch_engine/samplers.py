"""Weights that samplers read: pinned versions and loaded checkpoints, in bounded memory."""

import hashlib
import shutil
from collections import OrderedDict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from mint.core.errors import NotFoundError
from mint.torch_engine import checkpoint
from mint.torch_engine.lora import AdapterWeights, Layout, Target


class SamplerShelf:
    """Adapter versions for sampling, by name: a checkpoint's folder or a sampler's id. A path would
    not do: a save may overwrite what is there, into another folder.

    Least recently used ones leave memory when they exceed the limit. A checkpoint can be read
    again; a pinned version goes to the scratch folder and comes back from it.
    """

    def __init__(self, limit_bytes: int, scratch: Path) -> None:
        self._limit = limit_bytes
        self._scratch = scratch
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        self._held: OrderedDict[str, AdapterWeights] = OrderedDict()
        self._pinned: set[str] = set()
        self._spilled: dict[str, tuple[Layout, int, Path]] = {}

    @property
    def nbytes(self) -> int:
        return sum(weights.nbytes for weights in self._held.values())

    def __len__(self) -> int:
        return len(self._held) + len(self._spilled)

    def pin(self, name: str, weights: AdapterWeights) -> None:
        """Keep a version until it is released. The caller hands over a copy of its own."""
        self._pinned.add(name)
        self._hold(name, weights)

    def get(
        self, name: str, folder: Path | None, targets: tuple[Target, ...],
        device: torch.device | str,
    ) -> AdapterWeights:  # fmt: skip
        """The weights of a sampler, or those of a checkpoint, which has a `folder`, and is read from
        it if it is not here.

        Raises:
            NotFoundError: pinned weights that nobody holds any more.
            UserError, ServerFaultError: as checkpoint.load_weights.
        """
        name = name if folder is None else str(folder)
        if name in self._held:
            self._held.move_to_end(name)
            return self._held[name]
        if name in self._spilled:
            layout, version, path = self._spilled[name]
            weights = AdapterWeights(layout, load_file(path)["flat"].to(device), version)
            del self._spilled[name]
            path.unlink()
        elif folder is not None:
            manifest = checkpoint.read_manifest(folder)
            layout = Layout.of(manifest.lora, targets)
            flat = checkpoint.load_weights(folder, layout, device)
            weights = AdapterWeights(layout, flat, manifest.weights_version)
        else:
            raise NotFoundError(
                f"the weights of sampler {name} are gone: its session ended or the engine "
                "restarted. Make a new sampling client, from a saved checkpoint if need be."
            )
        self._hold(name, weights)
        return weights

    def release(self, name: str) -> None:
        """Forget a pinned version. Sequences in flight keep theirs until they end."""
        self._held.pop(name, None)
        self._pinned.discard(name)
        if name in self._spilled:
            self._spilled.pop(name)[2].unlink(missing_ok=True)

    def _hold(self, name: str, weights: AdapterWeights) -> None:
        self._held[name] = weights
        self._held.move_to_end(name)
        while self.nbytes > self._limit and len(self._held) > 1:
            oldest, weights = next(iter(self._held.items()))
            if oldest in self._pinned:
                file = hashlib.sha256(oldest.encode()).hexdigest()[:32] + ".safetensors"
                save_file({"flat": weights.flat.cpu()}, self._scratch / file)
                self._spilled[oldest] = (weights.layout, weights.version, self._scratch / file)
            del self._held[oldest]  # only now: a full disk must not lose what nobody else has
