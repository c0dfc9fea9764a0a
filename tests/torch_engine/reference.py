"""What a training pass must give, computed in float64 with nothing of ours but the formulas.

The plain transformers model runs each datum alone; LoRA is added to its linears by a hook.
"""

import copy
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from mint.core.datum import Datum
from mint.torch_engine.lora import TrainedAdapter

Params = dict[str, tuple[Tensor, Tensor]]


def with_lora(plain: PreTrainedModel, adapter: TrainedAdapter) -> tuple[PreTrainedModel, Params]:
    """A float64 copy of the model with the adapter added, and the adapter's float64 leaves."""
    model = copy.deepcopy(plain).double()
    params: Params = {}
    for target in adapter.layout.targets:
        a, b = (w.detach().double().requires_grad_(True) for w in adapter.pairs[target.name])
        params[target.name] = (a, b)
        linear = model.get_submodule(target.name)
        assert isinstance(linear, nn.Linear)
        scale = adapter.layout.scale

        def add(_: nn.Module, args: tuple[Tensor], y: Tensor, a=a, b=b, scale=scale) -> Tensor:
            return y + scale * (args[0] @ a.T) @ b.T

        linear.register_forward_hook(add)
    return model, params


def logprobs(model: PreTrainedModel, datum: Datum, temperature: float) -> Tensor:
    """float64, shaped like target_tokens."""
    tokens = torch.from_numpy(datum.model_input.tokens().astype(np.int64))
    logits = model(input_ids=tokens[None]).logits[0] / temperature
    table = torch.log_softmax(logits, dim=-1)
    target = torch.from_numpy(datum.loss_fn_inputs["target_tokens"].astype(np.int64))
    flat = target if target.ndim == 2 else target[:, None]
    return table.gather(1, flat).view(target.shape)


def loss(name: str, p: Tensor, datum: Datum, config: Mapping[str, float]) -> Tensor:
    """Each loss by its equation in the protocol's page, on one datum."""

    def given(key: str, default: float) -> Tensor:
        found = datum.loss_fn_inputs.get(key)
        if found is None:
            return torch.full_like(p, config.get(key, default))
        return torch.from_numpy(np.asarray(found, dtype=np.float64))

    if name == "cross_entropy":
        return -(given("weights", 1.0) * p).sum()
    q, adv = given("logprobs", math.nan), given("advantages", math.nan)
    r = torch.exp(p - q)
    if name == "importance_sampling":
        return -(r * adv).sum()
    if name == "dro":
        beta = config.get("beta", 0.01)
        return -(p * adv - 0.5 * beta * (p - q) ** 2).sum()
    low, high = {"ppo": (0.8, 1.2), "cispo": (0.0, 4.0), "gspo": (1 - 3e-4, 1 + 4e-4)}[name]
    low, high = given("clip_low_threshold", low), given("clip_high_threshold", high)
    if name == "ppo":
        return -torch.minimum(r * adv, torch.clamp(r, low, high) * adv).sum()
    if name == "cispo":
        return -(torch.clamp(r, low, high).detach() * adv * p).sum()
    inside = adv != 0
    s = torch.exp((p - q)[inside].mean()).detach() * torch.exp(p - p.detach())
    return -torch.minimum(s * adv, torch.clamp(s, low, high) * adv).sum()


def run(
    plain: PreTrainedModel,
    adapter: TrainedAdapter,
    data: Sequence[Datum],
    name: str,
    config: Mapping[str, float],
) -> tuple[float, list[np.ndarray], Tensor]:
    """(loss, logprobs per datum, flat gradient in the adapter's layout), all float64."""
    model, params = with_lora(plain, adapter)
    found = [logprobs(model, datum, config.get("temperature", 1.0)) for datum in data]
    total = torch.stack(
        [loss(name, p, datum, config) for p, datum in zip(found, data, strict=True)]
    ).sum()
    total.backward()
    flat = torch.zeros(adapter.layout.size, dtype=torch.float64)
    for target, views in adapter.layout.views(flat).items():
        for view, leaf in zip(views, params[target], strict=True):
            if leaf.grad is not None:
                view.copy_(leaf.grad)
    return float(total.detach()), [p.detach().numpy() for p in found], flat
