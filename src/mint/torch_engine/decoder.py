"""One base model with packed tokens in and hidden states or logits out.

Shapes: T packed tokens, E model width, N rows, V vocabulary.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from mint.torch_engine.adapter_rows import AdapterContext
from mint.torch_engine.adapter_rows import Counts as Counts
from mint.torch_engine.attention import AttentionPlan
from mint.torch_engine.course import Course, Steering, steer
from mint.torch_engine.frozen import FrozenMatrix
from mint.torch_engine.fused import fuse
from mint.torch_engine.linears import LoraLinear, wrap_linears
from mint.torch_engine.lora import Target
from mint.torch_engine.threads import few_rows


class Decoder:
    """A frozen causal LM whose linears add the adapter of each token.

    One forward serves prefill, decode, training and prompt scoring: they differ in their
    AttentionPlan only, so sampler and trainer agree by construction.
    """

    def __init__(self, module: PreTrainedModel, decode_threads: int | None = None) -> None:
        """Takes `module` over: its linears, norms, MLPs and attention are replaced. It must have been
        loaded with attn_implementation=attention.ATTENTION.

        Args:
            decode_threads: CPU threads of a product where few rows are computed; None: all.
        """
        embedding_VE = module.get_input_embeddings().weight
        assert isinstance(embedding_VE, Tensor)
        self.embedding_VE = embedding_VE
        self.device, self.dtype = embedding_VE.device, embedding_VE.dtype
        self._context = AdapterContext(self.device)
        self._decode_threads = decode_threads
        fuse(module)
        self.targets: tuple[Target, ...] = wrap_linears(module, self._context)
        self._module = module.eval()
        for layer in module.base_model.layers:  # pyright: ignore
            steer(layer)
        head = module.get_output_embeddings()
        assert isinstance(head, LoraLinear)
        self._head = head
        config = module.config
        self.vocab_size: int = config.vocab_size
        self.layers: int = config.num_hidden_layers
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.width: int = config.hidden_size
        self.inner_width: int = config.intermediate_size
        self.head_dim: int = getattr(config, "head_dim", None) or self.width // self.heads
        self.max_context: int = config.max_position_embeddings

    @property
    def nbytes(self) -> int:
        """Weights in every layout held, and copies of adapters that are batched."""
        held = {t.data_ptr(): t.nbytes for t in self._module.parameters()}
        matrices = 0
        for linear in self._module.modules():
            if isinstance(linear, LoraLinear):
                matrices += linear.matrix.nbytes
        tied = self.head_weight_VE.data_ptr() in held
        shared = self.head_weight_VE.nbytes if tied else 0
        return sum(held.values()) + matrices - shared + self._context.nbytes

    @property
    def head(self) -> FrozenMatrix:
        """The head's own product, without adapters."""
        return self._head.matrix

    @property
    def head_weight_VE(self) -> Tensor:
        return self._head.matrix.plain

    @property
    def head_name(self) -> str:
        return self._head.name

    def hidden(
        self,
        tokens_T: Tensor,
        positions_T: Tensor,
        plan: AttentionPlan,
        counts: Counts,
        course: Course | None = None,
    ) -> Tensor:
        """Last hidden states `[T, E]`, after the final norm.

        Args:
            course: how a pass that trains goes through the layers; others need none.
        """
        steering: dict[str, Any] = {}
        if course:
            own = replace(course, tick=self._aside(course.tick))
            steering["mint_steering"] = Steering(own, lambda: self._context.rows(counts))
        few = few_rows(len(tokens_T), self._decode_threads) if course is None else nullcontext()
        with self._context.rows(counts, may_pause=course is not None), few:
            out = self._module.base_model(
                input_ids=tokens_T.unsqueeze(0),
                position_ids=positions_T.unsqueeze(0),
                use_cache=False,
                mint_plan=plan,
                **steering,
            )
        return out.last_hidden_state[0]

    def _aside(self, tick: Callable[[float], None]) -> Callable[[float], None]:
        def run(cost: float) -> None:
            with self._context.aside():
                tick(cost)

        return run

    def logits(self, hidden_NE: Tensor, counts: Counts) -> Tensor:
        """Logits `[N, V]` of chosen rows, as float32 so that the softmax is taken in it; `counts`
        says whose rows they are."""
        with self._context.rows(counts):
            return self._head(hidden_NE).float()
