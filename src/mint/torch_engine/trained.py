"""TrainedModel: one adapter in training, with its gradients and optimizer state."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mint.core.checkpoints import CheckpointKind, CheckpointRef
from mint.core.errors import UserError
from mint.core.ids import ModelId
from mint.core.lora import LoraSpec
from mint.core.operations import Saved, StepResult
from mint.core.optim import AdamParams
from mint.torch_engine import checkpoint
from mint.torch_engine.bases import Base
from mint.torch_engine.lora import Layout, TrainedAdapter, initial_weights
from mint.torch_engine.optim import AdamState, adam_step


@dataclass(eq=False)
class TrainedModel:
    """One model of the API: base, adapter, gathered gradient, Adam."""

    base: Base
    adapter: TrainedAdapter
    optimizer: AdamState
    passes: int = 0
    """Gradient passes since the last step."""
    spoiled_by: str | None = None
    """A pass since the last step that failed, so that the gathered gradient is incomplete."""

    @classmethod
    def new(cls, base: Base, model_id: ModelId, spec: LoraSpec) -> "TrainedModel":
        layout = Layout.of(spec, base.decoder.targets)
        flat = initial_weights(layout, model_id=model_id, device=base.decoder.device)
        return cls(base, TrainedAdapter(layout, flat), AdamState.zeros_like(flat))

    @classmethod
    def from_checkpoint(cls, base: Base, folder: Path, with_optimizer: bool) -> "TrainedModel":
        """A model as its checkpoint describes it. Raises as checkpoint.load_weights."""
        manifest = checkpoint.read_manifest(folder)
        layout = Layout.of(manifest.lora, base.decoder.targets)
        flat = checkpoint.load_weights(folder, layout, base.decoder.device)
        adapter = TrainedAdapter(layout, flat, manifest.weights_version)
        optimizer = AdamState.zeros_like(flat)
        if with_optimizer:
            optimizer = _optimizer(folder, layout, base)
        return cls(base, adapter, optimizer)

    @property
    def nbytes(self) -> int:
        return self.adapter.nbytes + self.optimizer.nbytes

    def spoil(self, operation_id: str) -> None:
        self.spoiled_by = operation_id

    def discard_gradients(self) -> None:
        self.adapter.clear_grad()
        self.passes, self.spoiled_by = 0, None

    def optim_step(self, params: AdamParams) -> StepResult:
        """Apply the gathered gradient, clear it, and make the next version.

        Raises:
            UserError: there is no gradient, a part of it failed, or it is not finite. The weights
                stay as they are and the gradient is cleared.
        """
        passes, spoiled_by = self.passes, self.spoiled_by
        try:
            if spoiled_by is not None:
                raise UserError(
                    f"optim_step refused: forward_backward {spoiled_by} failed since the last "
                    "step, so its gradient would be incomplete. The weights are unchanged and "
                    "the gradient is cleared; send the whole batch again."
                )
            if not passes:
                raise UserError(
                    "optim_step refused: no forward_backward since the last step, so there is no "
                    "gradient. The weights are unchanged."
                )
            if not torch.isfinite(self.adapter.flat_grad).all():
                raise UserError(
                    "optim_step refused: the gradient is not finite (an overflow in a loss, such "
                    "as exp of a large logprob gap). The weights are unchanged and the gradient "
                    "is cleared."
                )
            norm = adam_step(self.adapter.flat, self.adapter.flat_grad, self.optimizer, params)
        finally:
            self.discard_gradients()
        self.adapter.version += 1
        return StepResult(
            metrics={"grad_norm": norm, "passes": float(passes)},
            weights_version=self.adapter.version,
        )

    def save(self, folder: Path, path: str) -> Saved:
        """Write a checkpoint; with optimizer state if its path is one of training."""
        training = CheckpointRef.parse(path).kind is CheckpointKind.TRAINING
        files = checkpoint.save(
            folder, self.adapter, self.base.name, self.optimizer if training else None
        )
        return Saved(files=files, weights_version=self.adapter.version, path=path)

    def load(self, folder: Path, with_optimizer: bool) -> None:
        """Take a checkpoint's weights over in place. All is read before anything is replaced.

        Raises:
            UserError: of another base model or shape, or it has no optimizer state to restore.
        """
        manifest = checkpoint.read_manifest(folder)
        if manifest.base_model != self.base.name:
            raise UserError(
                f"the checkpoint's base model is {manifest.base_model}, this model's is "
                f"{self.base.name}. Create a model from the checkpoint instead."
            )
        layout = self.adapter.layout
        if manifest.lora.rank != layout.spec.rank:
            raise UserError(
                f"the checkpoint has rank {manifest.lora.rank}, this model {layout.spec.rank}. "
                "Create a model from the checkpoint instead."
            )
        if with_optimizer and manifest.lora.alpha != layout.spec.alpha:
            raise UserError(
                f"the checkpoint has alpha {manifest.lora.alpha}, this model {layout.spec.alpha}: "
                "its optimizer state would mean something else here. Create a model from the "
                "checkpoint instead, or load it without the optimizer."
            )
        if with_optimizer:
            flat = checkpoint.load_weights(folder, layout, self.base.decoder.device)
        else:
            flat = self._taken_over(folder, manifest.lora)
        optimizer = (
            _optimizer(folder, layout, self.base) if with_optimizer else AdamState.zeros_like(flat)
        )
        with torch.no_grad():
            self.adapter.flat.copy_(flat)
        self.optimizer = optimizer
        self.adapter.version += 1  # never one that earlier samples of this model carry
        self.discard_gradients()

    def _taken_over(self, folder: Path, saved: LoraSpec) -> Tensor:
        """A checkpoint's function in this model's layout: B scaled to our alpha, and 0 where the
        checkpoint has no adapter. SDKs before 0.16 make a model with all switches on first."""
        layout = self.adapter.layout
        theirs = Layout.of(saved, self.base.decoder.targets)
        if extra := {t.name for t in theirs.targets} - {t.name for t in layout.targets}:
            raise UserError(
                f"the checkpoint also holds {min(extra)} ({len(extra)} linears in all) which this "
                "model does not train. Create a model from the checkpoint instead."
            )
        pairs = theirs.views(checkpoint.load_weights(folder, theirs, self.base.decoder.device))
        flat = self.adapter.flat.detach().clone()
        for name, (a, b) in layout.views(flat).items():
            if name in pairs:
                a.copy_(pairs[name][0])
                b.copy_(pairs[name][1] * (saved.alpha / layout.spec.alpha))
            else:
                b.zero_()
        return flat


def _optimizer(folder: Path, layout: Layout, base: Base) -> AdamState:
    state = checkpoint.load_optimizer(folder, layout, base.decoder.device)
    if state is None:
        raise UserError(
            "this checkpoint has no optimizer state: it was saved for sampling. Load it without "
            "the optimizer, or one that save_state() wrote."
        )
    return state
