import pytest
from tests.torch_engine.conftest import Tiny
from tests.torch_engine.sampling.harness import END_IDS, request, sample_one
from tokenizers import Tokenizer

from mint.core.sampling import Stop, StopReason
from mint.torch_engine.stopping import StopRule


@pytest.fixture(scope="module")
def tokenizer(tiny: Tiny) -> Tokenizer:
    """One token a byte."""
    return Tokenizer.from_file(str(tiny.folder / "tokenizer.json"))


def ends(tokenizer: Tokenizer, tokens: list[int], stop: Stop, max_tokens: int = 100):
    """(how many tokens are kept, why), feeding one after the other."""
    rule = StopRule.of(stop, eos_ids=END_IDS, max_tokens=max_tokens, tokenizer=tokenizer)
    for n in range(1, len(tokens) + 1):
        reason = rule.reason(tokens[:n])
        if reason:
            return n, reason
    return len(tokens), None


def test_the_models_end_token_ends_a_sequence_unless_told_not_to(tokenizer: Tokenizer):
    assert ends(tokenizer, [65, 258, 66], Stop()) == (2, StopReason.STOP)
    assert ends(tokenizer, [65, 256, 66], Stop()) == (2, StopReason.STOP)
    assert ends(tokenizer, [65, 258, 66], Stop(eos=False)) == (3, None)


def test_a_stop_id_ends_a_sequence(tokenizer: Tokenizer):
    assert ends(tokenizer, [65, 66, 67], Stop(token_ids=(66,))) == (2, StopReason.STOP)


@pytest.mark.parametrize(
    ("text", "stop", "kept"),
    [
        ("a plain STOP and more", "STOP", 12),
        ("never", "STOP", None),
        ("one\n\ntwo", "\n\n", 5),
        ("price: 5 € or so", "€", 12),  # three bytes, the last of them completes it
        ("naïve", "ï", 4),
        ("一二三", "二", 6),
        ("go 🙂 on", "🙂", 7),
        ("aab", "ab", 3),  # a first letter that does not count
        ("SSTOP", "STOP", 5),
    ],
)
def test_a_stop_text_ends_with_the_token_that_completes_it(
    tokenizer: Tokenizer, text: str, stop: str, kept: int | None
):
    tokens = list(text.encode())

    found = ends(tokenizer, tokens, Stop(texts=("something else", stop)))

    assert found == ((kept, StopReason.STOP) if kept else (len(tokens), None))


def test_a_stop_text_is_seen_amid_bytes_that_are_no_text(tokenizer: Tokenizer):
    tokens = [0xFF, 0x80, *b"END", 0xE2]

    assert ends(tokenizer, tokens, Stop(texts=("END",))) == (5, StopReason.STOP)


def test_a_special_token_can_be_a_stop_text(tokenizer: Tokenizer):
    stop = Stop(eos=False, texts=("<|im_end|>",))

    assert ends(tokenizer, [65, 258, 66], stop) == (2, StopReason.STOP)


def test_a_token_that_holds_more_than_the_stop_text_is_kept_whole(tokenizer: Tokenizer):
    wider = Tokenizer.from_str(tokenizer.to_str())
    wider.add_tokens(["xx STOP yy"])
    token = wider.token_to_id("xx STOP yy")
    assert token is not None

    assert ends(wider, [65, token, 66], Stop(texts=("STOP",))) == (2, StopReason.STOP)


def test_length_ends_a_sequence_and_a_stop_in_its_last_token_is_told_as_such(tokenizer: Tokenizer):
    assert ends(tokenizer, [65, 66, 67], Stop(), max_tokens=2) == (2, StopReason.LENGTH)
    assert ends(tokenizer, [65, 258], Stop(), max_tokens=2) == (2, StopReason.STOP)


def test_a_stop_text_is_looked_for_in_the_continuation_not_in_the_prompt(tiny: Tiny):
    prompt = [*b"STOP ST"]
    stop = Stop(eos=False, texts=("STOP",))

    free = sample_one(tiny, request(prompt, seed=1, max_tokens=20, stop=Stop(eos=False)))
    watched = sample_one(tiny, request(prompt, seed=1, max_tokens=20, stop=stop))

    assert watched.sequences[0].tokens.tolist() == free.sequences[0].tokens.tolist()
    assert watched.sequences[0].stop_reason is StopReason.LENGTH


def test_sampling_stops_at_a_text_and_keeps_the_tokens_up_to_its_end(tiny: Tiny):
    free = sample_one(tiny, request([1], seed=3, max_tokens=60, temperature=3.0))
    tokens = free.sequences[0].tokens.tolist()
    at = next(i for i in range(5, 50) if all(32 < t < 127 for t in tokens[i : i + 2]))
    text = bytes(tokens[at : at + 2]).decode()

    params = {"seed": 3, "max_tokens": 60, "temperature": 3.0}
    stopped = sample_one(tiny, request([1], stop=Stop(texts=(text,)), **params))

    assert stopped.sequences[0].tokens.tolist() == tokens[: at + 2]
    assert stopped.sequences[0].stop_reason is StopReason.STOP
