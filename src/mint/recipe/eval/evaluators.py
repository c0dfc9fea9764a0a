"""What an evaluation is: something to call with a client, that answers with numbers."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class TrainingClientEvaluator(ABC):
    """Measures the weights in training, by forward passes."""

    @abstractmethod
    async def __call__(self, training_client: Any) -> dict[str, float]:
        """Metrics by name."""


class SamplingClientEvaluator(ABC):
    """Measures the weights behind a sampler.

    One with an attribute `name` starts its keys with "<name>/"; where several of one run share a
    name, the later ones are recorded as "<name>_2/", "<name>_3/".
    """

    @abstractmethod
    async def __call__(self, sampling_client: Any) -> dict[str, float]:
        """Metrics by name."""


Evaluator = TrainingClientEvaluator | SamplingClientEvaluator
EvaluatorBuilder = Callable[[], Evaluator]
SamplingClientEvaluatorBuilder = Callable[[], SamplingClientEvaluator]
