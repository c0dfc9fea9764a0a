"""The embedded server as users meet it: the real one, with a tiny model, from several processes."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from mint.client import local_server
from mint.testing import tiny_model

IDLE_S = 12
"""Just above the 10 s between a client's heartbeats, or a script that only computes would lose its
server."""

SCRIPT = """
import sys
import mint
from mint import types

letter = sys.argv[1]
service = mint.ServiceClient()
client = service.create_lora_training_client("tiny", rank=8).result()
tokenizer = client.get_tokenizer()
tokens = tokenizer.encode("say: " + 8 * letter)
start = len(tokenizer.encode("say: "))
datum = types.Datum(
    model_input=types.ModelInput.from_ints(tokens[:-1]),
    loss_fn_inputs={
        "target_tokens": tokens[1:],
        "weights": [0.0] * (start - 1) + [1.0] * (len(tokens) - start),
    },
)
losses = []
for _ in range(12):
    computed = client.forward_backward([datum], "cross_entropy")
    stepped = client.optim_step(types.AdamParams(learning_rate=2e-2))
    losses.append(computed.result().metrics["loss:sum"])
    stepped.result()
sampler = client.save_weights_and_get_sampling_client().result()
prompt = types.ModelInput.from_ints(tokens[:start])
answer = sampler.sample(prompt, 1, types.SamplingParams(max_tokens=4, temperature=0)).result()
path = client.save_weights_for_sampler("end").result().path
print(f"RESULT|{tokenizer.decode(answer.sequences[0].tokens)}|{losses[0]}|{losses[-1]}|{path}")
service.close("success").result()
"""


PARITY_SCRIPT = """
import json
import mint
from mint import types

client = mint.ServiceClient().create_lora_training_client("tiny", rank=8).result()
prompt = client.get_tokenizer().encode("say something: ")
params = types.SamplingParams(max_tokens=12, temperature=0.7, seed=1)
sampler = client.save_weights_and_get_sampling_client().result()
drawn = sampler.sample(types.ModelInput.from_ints(prompt), 3, params).result()

def datum(sequence):
    tokens, before = prompt + list(sequence.tokens), [0.0] * (len(prompt) - 1)
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": tokens[1:],
            "logprobs": before + list(sequence.logprobs),
            "advantages": before + [1.0] * len(sequence.tokens),
        },
    )

computed = client.forward_backward(
    [datum(sequence) for sequence in drawn.sequences],
    "importance_sampling", loss_fn_config={"temperature": 0.7},
).result()
print("RESULT|" + json.dumps([computed.metrics, sum(len(s.tokens) for s in drawn.sequences)]))
"""


@dataclass(frozen=True)
class Trained:
    said: str
    first_loss: float
    last_loss: float
    path: str
    stderr: str


@dataclass(frozen=True)
class Home:
    folder: Path
    env: dict[str, str]

    def start(self, *command: str, **more_env: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, *command],
            env={**self.env, **more_env}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip


@contextmanager
def home_in(folder: Path, idle_s: int) -> Iterator[Home]:
    """A home without a server yet; the one that a client starts there leaves after `idle_s`."""
    model = tiny_model(folder / "models")
    env = {name: value for name, value in os.environ.items() if name.partition("_")[0] != "MINT"}
    env |= {
        "MINT_HOME": str(folder),
        "MINT_EMBEDDED_MODEL": model.spec,
        "MINT_EMBEDDED_IDLE_S": str(idle_s),
        "OMP_NUM_THREADS": "1",
    }
    yield Home(folder, env)
    server = local_server.recorded(folder)
    if server is not None and local_server.is_alive(server.pid):
        os.kill(server.pid, signal.SIGTERM)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with home_in(tmp_path_factory.mktemp("home"), IDLE_S) as home:
        yield home


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A home whose server stays, however long the imports of its clients take on a busy machine."""
    with home_in(tmp_path_factory.mktemp("served"), idle_s=600) as home:
        first = home.start("-c", "import mint; mint.ServiceClient()")
        _, err = first.communicate(timeout=200)
        assert first.returncode == 0, err
        yield home


@pytest.fixture(scope="module")
def trained(home: Home) -> dict[str, Trained]:
    """Two scripts, started at once, each teaching an adapter its own letter."""
    running = {letter: home.start("-c", SCRIPT, letter) for letter in "AB"}
    results = {}
    for letter, process in running.items():
        out, err = process.communicate(timeout=200)
        assert process.returncode == 0, err
        said, first, last, path = out.rpartition("RESULT|")[2].strip().split("|")
        results[letter] = Trained(said, float(first), float(last), path, err)
    return results


def test_two_scripts_at_once_train_their_own_adapters_on_one_server(trained: dict[str, Trained]):
    assert {letter: result.said for letter, result in trained.items()} == {"A": "AAAA", "B": "BBBB"}
    assert all(result.last_loss < result.first_loss / 10 for result in trained.values())
    assert trained["A"].path != trained["B"].path

    lines = [
        [line for line in result.stderr.splitlines() if line.startswith("mint: local server at")]
        for result in trained.values()
    ]
    assert lines[0] == lines[1]  # the same address
    assert len(lines[0]) == 1  # said once


def test_the_server_leaves_when_its_clients_are_gone_and_the_checkpoints_stay(
    home: Home, trained: dict[str, Trained]
):
    deadline = time.monotonic() + 60
    while (home.folder / "data" / "server.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)

    asked = home.start(
        "-m", "mint.cli.main", "sample", "--checkpoint", trained["B"].path,
        "--temperature", "0", "--max-tokens", "4", "say: ",
        MINT_EMBEDDED_IDLE_S="600",  # the imports of a client can take longer than IDLE_S
    )  # fmt: skip
    out, err = asked.communicate(timeout=200)

    assert asked.returncode == 0, err
    assert out.strip() == "BBBB"


def test_the_key_and_the_record_are_for_their_owner_only(home: Home, trained: dict[str, Trained]):
    data = home.folder / "data"
    assert oct((data / "key").stat().st_mode & 0o777) == "0o600"
    assert oct(data.stat().st_mode & 0o777) == "0o700"


@pytest.mark.slow
def test_a_client_that_only_computes_keeps_its_server(home: Home):
    script = f"""
    import time, mint
    client = mint.ServiceClient().create_sampling_client(base_model="tiny").result()
    time.sleep({3 * IDLE_S})
    prompt = mint.ModelInput.from_ints([1, 2, 3])
    print(len(client.sample(prompt, 2, mint.SamplingParams(max_tokens=2)).result().sequences))
    """
    asked = home.start("-c", textwrap.dedent(script))
    out, err = asked.communicate(timeout=200)
    assert out.strip() == "2", err


def test_a_record_left_by_a_killed_server_does_not_keep_the_next_client_away(served: Home):
    record = json.loads((served.folder / "data" / "server.json").read_text())
    os.kill(record["pid"], signal.SIGKILL)

    second = served.start(
        "-c", "import mint; print(mint.RestClient().get_server_capabilities().result())"
    )
    out, err = second.communicate(timeout=200)

    assert second.returncode == 0, err
    assert "tiny" in out


def test_a_model_that_cannot_be_had_is_one_line_and_exit_code_1(served: Home):
    asked = served.start("-m", "mint.cli.main", "sample", "--model", "no-such-model", "hello")
    out, err = asked.communicate(timeout=200)
    assert (asked.returncode, out) == (1, "")
    complaint = [line for line in err.splitlines() if line.startswith("Error:")]
    assert len(complaint) == 1
    assert "no-such-model" in complaint[0]
    assert "Traceback" not in err


def test_upstreams_own_client_is_let_in_with_the_key_in_upstreams_form(served: Home):
    server = local_server.recorded(served.folder)
    assert server is not None
    asked = served.start(
        "-c", "import tinker; print(tinker.RestClient().get_server_capabilities().result())",
        TINKER_BASE_URL=server.url, TINKER_API_KEY=f"tml-{server.key}",
    )  # fmt: skip
    out, err = asked.communicate(timeout=200)

    assert asked.returncode == 0, err
    assert "tiny" in out


def test_logprobs_that_went_through_the_sdk_and_back_are_known_as_sampled_here(served: Home):
    process = served.start("-c", PARITY_SCRIPT)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    metrics, sampled = json.loads(out.rpartition("RESULT|")[2])
    assert metrics["parity/tokens:sum"] == sampled
    assert 0 <= metrics["parity/logprob_gap:mean"] <= metrics["parity/logprob_gap:max"] <= 1e-4
