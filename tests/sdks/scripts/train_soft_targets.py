"""Several weighted targets per position, dense."""

import numpy as np
from tests.sdks.scripting import new_model, prompt
from tinker import types

targets = np.array([[2, 9], [3, 9], [4, 9]], dtype=np.int64)
weights = np.array([[0.75, 0.25], [1.0, 0.0], [0.5, 0.5]], dtype=np.float32)
soft = types.Datum(
    model_input=prompt([1, 2, 3]),
    loss_fn_inputs={
        "target_tokens": types.TensorData.from_numpy(targets),
        "weights": types.TensorData.from_numpy(weights),
    },
)
output = new_model().forward_backward([soft], "cross_entropy").result()
found = output.loss_fn_outputs[0]["logprobs"].to_numpy()

assert found.shape == (3, 2), found
expected = -float((weights * found).sum())
assert abs(output.metrics["loss:sum"] - expected) < 0.01, (output.metrics, expected)
