"""Preference chat: a judge, which is a model too, prefers some answers to others.

    python demos/rl/preference_chat.py

The judge is the base model. It is asked whether an answer is good, and how likely it is to say yes is
read from its logprobs; nothing is sampled for that. An answer is worth what the judge likes it more
than one of the base model's own.

Settings: MINT_BASE_MODEL, MINT_LORA_RANK, and MINT_RL_STEPS, _BATCH, _GROUP, _LR, _MAX_TOKENS and
_TEMPERATURE. What to expect is in demos/README.md.
"""

import asyncio
import math
from collections.abc import Sequence

import mint
from mint import ModelInput, SamplingClient, SamplingParams, recipe
from mint.recipe.service import compute_logprobs, sample
from mint.rl_core import Reward, RLAdapter, RLConfig, run_grpo

DEFAULTS = {
    "model": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "steps": 10,
    "batch": 4,
    "group": 6,
    "lr": 3e-4,
    "max_tokens": 40,
}
"""Where the environment says nothing: some minutes with the embedded model."""

QUESTIONS = [
    "How do I sleep better?",
    "What is a good breakfast?",
    "How can I learn to swim?",
    "Why do plants need light?",
    "How do I calm down before an exam?",
    "What should I take to the beach?",
    "How do I keep bread fresh?",
    "What can I do on a rainy day?",
]

JUDGED = [
    ("What color is the sky?", "It is blue by day.", "Yes"),
    ("How do I boil an egg?", "Eggs are eggs, and an egg is an egg.", "No"),
    ("How can I learn to dance?", "Take lessons at a school near you.", "Yes"),
    ("Name a fruit.", "I like you.", "No"),
]
"""Shown to the judge before the answer that it is asked about."""


class PreferenceChat(RLAdapter):
    """Worth between -1 and 1; above 0, the judge prefers the answer to the base model's."""

    timeout_s = 300.0
    """A judge that hangs holds a step up for as long; the group is then worth 0, which is no preference."""

    def __init__(self, base: SamplingClient, config: RLConfig) -> None:
        super().__init__(base.get_tokenizer())
        self.base = base
        self.config = config
        name = recipe.get_recommended_renderer_name(config.model)
        self.renderer = recipe.renderers.get_renderer(name, self.get_tokenizer())
        self.questions = {self.prompt(question): question for question in QUESTIONS}

    def prompt(self, question: str) -> tuple[int, ...]:
        asked: recipe.Message = {"role": "user", "content": question}
        return tuple(self.renderer.build_generation_prompt([asked]).to_ints())

    async def score_batch(self, pairs: Sequence[tuple[ModelInput, ModelInput]]) -> list[Reward]:
        """The rewards of a group: answers to one question, so one rival does for all of them."""
        prompt = pairs[0][0]
        question, rival = self.questions[tuple(prompt.to_ints())], await self.rival(prompt)
        answers = [self.response_text(response) for _, response in pairs]
        rated, *ratings = await asyncio.gather(
            *(self.rating(question, answer) for answer in [rival, *answers])
        )
        return [
            Reward(rating - rated, {"answer": answer, "rival": rival})
            for answer, rating in zip(answers, ratings, strict=True)
        ]

    async def rival(self, prompt: ModelInput) -> str:
        """What the base model answers."""
        params = SamplingParams(
            max_tokens=self.config.max_tokens,
            temperature=self.config.temperature,
            stop=self.renderer.get_stop_sequences(),
        )
        answer = await sample(self.base, prompt, num_samples=1, params=params)
        return self.response_text(ModelInput.from_ints(answer.sequences[0].tokens))

    async def rating(self, question: str, answer: str) -> float:
        """How likely the judge is to call an answer good, from 0 to 1.

        A judge leans to what it has just read, here the verdict of its last example. So it is asked
        twice, with the examples in both orders, and the mean counts.
        """
        orders = JUDGED, JUDGED[::-1]
        chances = await asyncio.gather(
            *(self.chance_of_yes([*order, (question, answer, "Yes")]) for order in orders)
        )
        return sum(chances) / len(chances)

    async def chance_of_yes(self, judged: Sequence[tuple[str, str, str]]) -> float:
        """How likely the judge gives the last verdict itself: that of the token which stands there."""
        text = "\n\n".join(
            f"Question: {question}\nAnswer: {one_line(answer)}\nGood answer: {verdict}"
            for question, answer, verdict in judged
        )
        tokens = self.get_tokenizer().encode(text, add_special_tokens=False)
        *_, logprob = await compute_logprobs(self.base, ModelInput.from_ints(tokens))
        assert logprob is not None, "only the first token of a text has none"
        return math.exp(logprob)


def one_line(answer: str) -> str:
    """So that no answer can write a line of the judge's form."""
    return " ".join(answer.split())


def main(config: RLConfig) -> None:
    service = mint.ServiceClient()
    base = service.create_sampling_client(base_model=config.model).result()
    adapter = PreferenceChat(base, config)
    run_grpo(adapter, config, prompts=list(adapter.questions), service_client=service)


if __name__ == "__main__":
    main(RLConfig.from_env(**DEFAULTS))
