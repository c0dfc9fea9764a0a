"""Queues operations as the service does, straight into a store."""

from typing import Any

import numpy as np
from tests.server.rows import ANNE, a_model, a_session

from mint.core.datum import Datum
from mint.core.ids import ModelId, OperationId, Owner, SamplerId
from mint.core.lora import LoraSpec
from mint.core.model_input import ModelInput
from mint.core.operations import (
    CreateModel,
    CreateModelFrom,
    ForwardBackward,
    Operation,
    OptimStep,
    PinSampler,
    Sample,
    SaveWeights,
)
from mint.core.optim import AdamParams
from mint.core.sampling import SamplingParams
from mint.server.store.records import NewOperation, NewSampler, OperationRecord
from mint.server.store.store import Store
from mint.wire import payloads


class Client:
    """One owner's session with a store."""

    def __init__(self, store: Store, owner: Owner = ANNE) -> None:
        self.store = store
        self.owner = owner
        self.session = a_session(store, owner)

    def send(self, operation: Operation, **more: Any) -> OperationId:
        model_id = getattr(operation, "model_id", None)
        return self.store.enqueue(
            NewOperation(
                owner=self.owner,
                kind=type(operation).__name__,
                payload=payloads.encode(operation),
                scope=model_id or self.session.session_id,
                seq_id=None,
                model_id=model_id,
                sampler_id=getattr(operation, "sampler_id", None),
                tokens=1,
            ),
            **more,
        )

    def create(self, seq: int = 0, base: str = "tiny") -> tuple[ModelId, OperationId]:
        model = a_model(self.session, seq, base)
        create = CreateModel(model_id=model.model_id, base_model=base, lora=LoraSpec(rank=4))
        return model.model_id, self.send(create, model=model)

    def create_from(self, seq: int, path: str) -> tuple[ModelId, OperationId]:
        model = a_model(self.session, seq, "")
        create = CreateModelFrom(model_id=model.model_id, path=path, with_optimizer=True)
        return model.model_id, self.send(create, model=model)

    def forward_backward(self, model_id: ModelId) -> OperationId:
        tokens = np.arange(3, dtype=np.int64)
        datum = Datum(ModelInput.from_ints(range(3)), {"target_tokens": tokens})
        return self.send(ForwardBackward(model_id=model_id, data=(datum,), loss_fn="cross_entropy"))

    def step(self, model_id: ModelId) -> OperationId:
        return self.send(OptimStep(model_id=model_id, params=AdamParams()))

    def save(self, model_id: ModelId, name: str, **fields: Any) -> tuple[str, OperationId]:
        path = f"tinker://{model_id}/weights/{name}"
        return path, self.send(SaveWeights(model_id=model_id, path=path, **fields))

    def pin(self, model_id: ModelId, name: str) -> tuple[SamplerId, OperationId]:
        sampler_id = SamplerId(name)
        sampler = NewSampler(
            sampler_id=sampler_id, session_id=self.session.session_id, owner=self.owner,
            base_model="tiny", weights=sampler_id, model_id=model_id,
        )  # fmt: skip
        pin = PinSampler(model_id=model_id, sampler_id=sampler_id)
        return sampler_id, self.send(pin, sampler=sampler)

    def sample(
        self,
        sampler_id: str = "base",
        weights: str | None = None,
        max_tokens: int = 2,
        seed: int | None = None,
    ) -> OperationId:
        return self.send(
            Sample(
                sampler_id=SamplerId(sampler_id),
                base_model="tiny",
                weights=weights,
                prompt=ModelInput.from_ints([1]),
                params=SamplingParams(max_tokens=max_tokens, seed=seed),
            )
        )

    def record(self, operation_id: OperationId) -> OperationRecord:
        return self.store.operation(self.owner, operation_id)
