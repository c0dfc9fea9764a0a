"""Who may run: a queue of requests, in order of arrival, against sequences and KV tokens.

Holds every list of requests, prompts and sequences; computes nothing.
"""

from collections import deque

from mint.core.model_input import Tokens
from mint.core.operations import Sample
from mint.torch_engine.kv_cache import KvCache
from mint.torch_engine.lora import AdapterWeights
from mint.torch_engine.prompt_scores import PromptScores
from mint.torch_engine.sequences import Prompt, Request, Sequence


class Admission:
    """Lets sequences in while there is room, and puts their room back when they leave.

    Strictly first come, first served: a request that does not fit holds up those behind it, so
    that a large one is never starved by small ones. It may enter sequence by sequence.
    """

    def __init__(self, kv: KvCache, max_sequences: int) -> None:
        self._kv = kv
        self._max_sequences = max_sequences
        self._shared: dict[tuple[int, bytes], Prompt] = {}
        self.waiting: deque[Request] = deque()
        """Requests with sequences not admitted yet."""
        self.prefilling: list[Prompt] = []
        """Prompts that have a place, but not all of their keys and values."""
        self.fresh: dict[Sequence, None] = {}
        """Admitted sequences without a token, in order; also `running`, for those with some."""
        self.running: dict[Sequence, None] = {}

    def prompt(
        self, tokens: Tokens, weights: AdapterWeights | None, sample: Sample, seed: int
    ) -> Prompt:
        """The prompt of a new request: one that is here already where that will do."""
        scores = PromptScores(sample, tokens, seed) if PromptScores.wanted(sample) else None
        new = Prompt(tokens, weights, scores)
        found = self._shared.setdefault(new.key, new)
        prompt = new if scores else found
        prompt.requests += 1
        return prompt

    def admit(self) -> None:
        """Let in as many of the waiting sequences as fit now.

        Whatever this raises (out of memory) is about the request in front: it has no new sequence,
        and those before it are in.
        """
        while self.waiting:
            request = self.waiting[0]
            while request.unadmitted and self._fits_next(request):
                sequence = request.next_sequence()
                request.prompt.active += 1
                self.fresh[sequence] = None
            if request.unadmitted:
                return
            self.waiting.popleft()

    def start(self, sequence: Sequence) -> None:
        """It has its first token."""
        del self.fresh[sequence]
        self.running[sequence] = None

    def leave(self, sequence: Sequence) -> None:
        """Put a sequence's room back. Does nothing if it has left already."""
        if sequence in self.fresh:
            del self.fresh[sequence]
        elif sequence in self.running:
            del self.running[sequence]
        else:
            return
        sequence.prompt.active -= 1
        self._kv.release(sequence.request.suffix_tokens)
        if sequence.place:
            self._kv.give_back(sequence.place)
            sequence.place = None

    def forget(self, request: Request) -> None:
        """A request has ended, in whatever way: everything only it held is free again."""
        for sequence in request.sequences:
            self.leave(sequence)
        if request.unadmitted and request in self.waiting:
            self.waiting.remove(request)
        prompt = request.prompt
        prompt.requests -= 1
        if not prompt.requests:
            self._put_back(prompt)
            if self._shared.get(prompt.key) is prompt:
                del self._shared[prompt.key]

    def _fits_next(self, request: Request) -> bool:
        if len(self.fresh) + len(self.running) >= self._max_sequences:
            return False
        prompt = request.prompt
        if prompt.place:
            return self._reserve(request.suffix_tokens, prompt)
        if not self._reserve(len(prompt.tokens) + request.suffix_tokens, prompt):
            return False
        try:
            prompt.place = self._kv.new_prompt(len(prompt.tokens))
        except Exception:
            self._kv.release(len(prompt.tokens) + request.suffix_tokens)
            raise
        self.prefilling.append(prompt)
        return True

    def _reserve(self, tokens: int, keep: Prompt) -> bool:
        if self._kv.reserve(tokens):
            return True
        # Prompts kept only for requests further back would otherwise block those in front.
        for prompt in self._shared.values():
            if not prompt.active and prompt is not keep:
                self._put_back(prompt)
        return self._kv.reserve(tokens)

    def _put_back(self, prompt: Prompt) -> None:
        """Give up a prompt's keys and values; admitting it again computes them again."""
        if not prompt.place:
            return
        if prompt in self.prefilling:
            self.prefilling.remove(prompt)
        self._kv.give_back(prompt.place)
        self._kv.release(len(prompt.tokens))
        prompt.place = prompt.last_hidden_E = None
