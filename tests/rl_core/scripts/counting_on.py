import random

from mint.rl_core import RLAdapter, RLConfig, run_grpo


class CountingOn(RLAdapter):
    """The number that comes next; a digit of any kind is a beginning."""

    def build_dataset(self):
        return [random.randint(1, 90) for _ in range(100)]

    def make_prompt(self, sample, tokenizer):
        return tokenizer.encode(f"{sample}, {sample + 1}, {sample + 2},")

    def compute_reward(self, response, sample):
        if response.strip().startswith(str(sample + 3)):
            return 1.0
        return 0.3 * any(letter.isdigit() for letter in response) + 0.1 * (len(response) % 2)


config = RLConfig.from_env(
    model="HuggingFaceTB/SmolLM2-135M-Instruct", steps=6, group=8, lr=5e-4, max_tokens=6
)
run_grpo(CountingOn(), config)
