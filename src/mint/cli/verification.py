"""Whether what a server computes from a checkpoint is what others compute from its files."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mint.core.errors import ConfigError, MintError
from mint.core.parity import LARGEST_GAP

if TYPE_CHECKING:
    from mint.client.connect import Connection

TEXTS = (
    "Question: What is 27 + 82?\nAnswer: 109\n",
    "def add(a: int, b: int) -> int:\n    return a + b\n",
    "The quick brown fox jumps over the lazy dog, twice; then it sleeps until noon.",
    "学而时习之，不亦说乎？ Ça alors — ¡qué día!",
)
"""Fixed, so that two runs give the same figure; of several kinds, so that many rows of the
vocabulary are looked at."""


class MismatchError(MintError):
    """The two sides compute different models."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """How far two computations of the fixed prompts lie apart, in nats."""

    max_gap: float
    tolerance: float
    tokens: int
    adapter_moves_by: float
    """Largest difference between base model and adapter on the server: what a comparison that
    forgot the adapter would have missed."""
    against: str

    def check(self) -> None:
        """Raises: MismatchError: the gap is above the tolerance, or no number."""
        if not self.max_gap <= self.tolerance:
            raise MismatchError(
                f"the server's logprobs and those of {self.against} differ by up to "
                f"{self.max_gap:.3g}; up to {self.tolerance:.3g} would be rounding."
            )

    def check_rounding(self, dtypes: Sequence[str]) -> None:
        """Raises: MismatchError: merged weights of these dtypes lose what the adapter does."""
        if self.max_gap > max(LARGEST_GAP["float32"] / 10, self.adapter_moves_by / 2):
            raise MismatchError(
                f"rounding the merged weights to {', '.join(dtypes)} moves logprobs by up to "
                f"{self.max_gap:.2g}, and the adapter itself by {self.adapter_moves_by:.2g}: it "
                "would be lost in it. Use --dtype float32."
            )

    def __str__(self) -> str:
        return (
            f"verified: logprobs of {self.tokens} tokens differ by at most {self.max_gap:.2g} "
            f"between the server and {self.against} (tolerance {self.tolerance:.2g}; the adapter "
            f"moves them by up to {self.adapter_moves_by:.2g})"
        )


@dataclass(frozen=True)
class ServerSide:
    """The fixed prompts, and their logprobs on the server."""

    prompts: list[list[int]]
    adapted: list[list[float]]
    base: list[list[float]]

    def compare(self, local: Sequence[Sequence[float]], tolerance: float, against: str):
        """Set another computation of the same prompts beside the server's."""
        return Verification(
            max_gap=_gap(self.adapted, local),
            tolerance=tolerance,
            tokens=sum(len(row) for row in self.adapted),
            adapter_moves_by=_gap(self.adapted, self.base),
            against=against,
        )


def ask_server(connection: "Connection", path: str, base_model: str) -> ServerSide:
    """Have a server score the fixed prompts with a checkpoint, and without."""
    import mint

    prompts = fixed_prompts(connection, base_model)
    with mint.ServiceClient(base_url=connection.base_url, api_key=connection.api_key) as service:
        sides = []
        for client in (
            service.create_sampling_client(model_path=path).result(),
            service.create_sampling_client(base_model=base_model).result(),
        ):
            waiting = [client.compute_logprobs(mint.ModelInput.from_ints(p)) for p in prompts]
            sides.append([_known(future.result()) for future in waiting])
    return ServerSide(prompts, sides[0], sides[1])


def write_note(folder: Path, verification: Verification | None, **facts: Any) -> None:
    """Say inside an exported folder what it is and how it was compared."""
    note = {"format": 1, **facts, "verification": verification and asdict(verification)}
    (folder / "export.json").write_text(json.dumps(note, indent=2, ensure_ascii=False) + "\n")


def fixed_prompts(connection: "Connection", base_model: str) -> list[list[int]]:
    """The fixed texts as tokens of a served model."""
    from tokenizers import Tokenizer

    from mint.client.settings import default_home
    from mint.client.tokenizer import folder_for

    folder = folder_for(connection, base_model, default_home())
    if folder is None:
        raise ConfigError(
            f"{connection.base_url} hands out no tokenizers: it is no server of ours."
        )
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]


def _known(values: Sequence[float | None]) -> list[float]:
    """Without the first token's, which has none."""
    return [float("nan") if value is None else value for value in values[1:]]


def _gap(one: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> float:
    """The largest difference; NaN if there is a NaN, which no tolerance lets through."""
    gaps = [
        abs(a - b)
        for row, with_row in zip(one, other, strict=True)
        for a, b in zip(row, with_row, strict=True)
    ]
    return max(gaps) if all(gap == gap for gap in gaps) else float("nan")
