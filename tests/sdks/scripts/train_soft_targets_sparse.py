"""Several weighted targets per position, as torch tensors: sparse on the wire where it is smaller."""

import numpy as np
import torch
from tests.sdks.scripting import close, needs, new_model, prompt
from tinker import types

sparsely = needs(types.TensorData, "from_torch_sparse")
WIDE = 16
targets = torch.zeros((3, WIDE), dtype=torch.int64)
weights = torch.zeros((3, WIDE))
targets[:, 0], weights[:, 0] = torch.tensor([2, 3, 4]), 1.0
targets[1, 5], weights[1, 5] = 9, 0.5


def passed(pack) -> tuple[float, list[float]]:
    data = types.Datum(
        model_input=prompt([1, 2, 3]),
        loss_fn_inputs={"target_tokens": pack(targets), "weights": pack(weights)},
    )
    output = training.forward_backward([data], "cross_entropy").result()
    found = np.array(output.loss_fn_outputs[0]["logprobs"].to_numpy())
    assert found.shape == (3, WIDE), found.shape
    return output.metrics["loss:sum"], found[weights.numpy() != 0].tolist()


training = new_model()
assert sparsely(targets).sparse_crow_indices is not None  # it does go sparse
dense, sparse = passed(types.TensorData.from_torch), passed(sparsely)
assert abs(dense[0] - sparse[0]) < 0.01, (dense, sparse)
assert close(dense[1], sparse[1]), (dense, sparse)
