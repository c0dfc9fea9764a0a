from mint.rl_core import Reward, RLAdapter, RLConfig, run_grpo


class ShortColours(RLAdapter):
    """Answers shall be short, and name a colour."""

    def __call__(self, prompt, response):
        text = self.response_text(response)
        colour = any(name in text.lower() for name in ("red", "blue", "green", "yellow"))
        brevity = 1 - min(len(text), 60) / 60
        return Reward(0.7 * colour + 0.3 * brevity, {"colour": colour, "brevity": brevity})


prompts = ["Name a colour.", "What colour is the sky?", "What colour is grass?", "Pick a colour."]
config = RLConfig.from_env(
    model="HuggingFaceTB/SmolLM2-135M-Instruct", steps=6, batch=4, group=8, lr=5e-4
)
run_grpo(ShortColours(), config, prompts=prompts)
