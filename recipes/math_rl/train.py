"""Teach a model sums by reinforcement learning, with the environment in `arithmetic.py`.

    python -m recipes.math_rl.train
    python -m recipes.math_rl.train model_name=Qwen/Qwen3-0.6B steps=100 highest=99
    mint runs show runs/math-rl --html run.html

Every field of `Settings` can be given as name=value. Without MINT_BASE_URL a local server starts by
itself. A run that was interrupted goes on when it is started again with the same log_path.
"""

import asyncio
import sys

import chz
from recipes.math_rl.arithmetic import SumsDatasetBuilder

import mint
from mint import recipe


@chz.chz
class Settings:
    """One run. The defaults teach the embedded model in minutes on two cores."""

    model_name: str = "HuggingFaceTB/SmolLM2-135M-Instruct"
    lora_rank: int = 16
    steps: int = 30
    batch_size: int = 8
    """Questions a step."""
    group_size: int = 8
    """Answers a question."""
    highest: int = 9
    """Of the two numbers to be added."""
    learning_rate: float = 3e-4
    max_tokens: int = 12
    eval_every: int = 10
    """Steps; 0: never."""
    seed: int = 0
    """Of the questions."""
    log_path: str = "runs/math-rl"
    base_url: str | None = None
    """None: MINT_BASE_URL, or the embedded server."""


def make_config(settings: Settings) -> recipe.rl.train.Config:
    renderer_name = recipe.get_recommended_renderer_name(settings.model_name)
    return recipe.rl.train.Config(
        learning_rate=settings.learning_rate,
        dataset_builder=SumsDatasetBuilder(
            model_name=settings.model_name,
            renderer_name=renderer_name,
            steps=settings.steps,
            batch_size=settings.batch_size,
            group_size=settings.group_size,
            highest=settings.highest,
            test_batches=8 if settings.eval_every else 0,
            seed=settings.seed,
        ),
        model_name=settings.model_name,
        renderer_name=renderer_name,
        lora_rank=settings.lora_rank,
        max_tokens=settings.max_tokens,
        eval_every=settings.eval_every,
        log_path=settings.log_path,
        base_url=settings.base_url,
    )


def main(settings: Settings) -> int:
    try:
        asyncio.run(recipe.rl.train.main(make_config(settings)))
    except (mint.MintError, mint.TinkerError) as error:
        print(f"Failed: {str(error).split(' for self.request_id=')[0]}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"Trained. To look at it: mint runs show {settings.log_path} --html run.html")
    return 0


if __name__ == "__main__":
    sys.exit(main(chz.entrypoint(Settings)))
