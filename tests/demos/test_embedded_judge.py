"""The embedded model as a judge: small as it is, it can tell an answer from nonsense."""

import pytest
import torch
from demos.rl.preference_chat import PreferenceChat
from tests.recipe.fake_service import FakeService
from tests.torch_engine.conftest import load_plain
from transformers import AutoTokenizer

from mint.rl_core import RLConfig

# fmt: off
ANSWERS = [
    ("How do I sleep well?", "Go to bed at the same time every night.", "Bananas are yellow and the car is fast."),
    ("How do I keep bread fresh?", "Keep it in a closed bag, or freeze it in slices.", "I am not sure."),
    ("What is a good way to learn a language?", "Practice a little every day and speak with people who know it.", "Language language language language."),
    ("How can I be polite in an email?", "Start with a greeting, say please and thank you, and keep it short.", "You can be polite. The email is an email that is an email."),
    ("Why do plants need light?", "They use light to make sugar from water and carbon dioxide.", "Plants are things that Mr. Smith ate on Tuesday with his 3 dogs."),
    ("Suggest a healthy breakfast.", "Oatmeal with fruit and nuts is a healthy breakfast.", "No."),
    ("How do I make a friend feel better?", "Listen to them, and ask what they need.", "Go away and stop talking to them."),
    ("What should I do before an exam?", "Review your notes, then sleep well.", "import numpy as np"),
    ("What is a good pet for a child?", "A guinea pig is gentle and easy to care for.", "A pet is a good pet for a pet."),
    ("How do I clean a window?", "Wipe it with water and a little vinegar, then dry it.", "The president of France lives in Paris."),
    ("Name a game for a rainy day.", "You could play chess or a board game with your family.", "Rain rain rain rain go away rain."),
    ("How can I save money?", "Write down what you spend and cook at home more often.", "Yes, I can do that."),
    ("How do I stay warm in winter?", "Wear several layers, a hat and gloves.", "Step 1: x = 5. Step 2: y = 9."),
    ("What should I pack for the beach?", "Bring a towel, sunscreen and plenty of water.", "I'm sorry, I'm an AI model and cannot pack."),
]
"""A question, an answer to it, and nonsense."""
# fmt: on


@pytest.mark.slow
async def test_the_embedded_judge_likes_answers_more_than_nonsense(embedded_model):
    model = load_plain(embedded_model.folder)
    tokenizer = AutoTokenizer.from_pretrained(embedded_model.folder)

    def logprobs(tokens: list[int], temperature: float) -> list[float]:
        with torch.no_grad():
            logits_TV = model(input_ids=torch.tensor([tokens])).logits[0]
        logprobs_TV = torch.log_softmax(logits_TV, dim=-1)
        return [0.0, *(logprobs_TV[t, token].item() for t, token in enumerate(tokens[1:]))]

    fake = FakeService(score=logprobs, tokenizer=tokenizer, base_model=embedded_model.name)
    base = fake.create_sampling_client(base_model=embedded_model.name).result()
    judge = PreferenceChat(base, RLConfig(model=embedded_model.name))

    told_apart = 0
    for question, answer, nonsense in ANSWERS:
        told_apart += await judge.rating(question, answer) > await judge.rating(question, nonsense)

    assert told_apart >= 12  # of 14: 13 when this was written
