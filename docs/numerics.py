"""The rows of docs/en/numerics.md that are measured on a real model, from benchmarks/results."""

from collections.abc import Sequence
from pathlib import Path

from docs.performance import NOT_MEASURED, RESULTS, Result, Say, read

PARITY = (("parity", "float32"), ("parity_bfloat16", "bfloat16"))
CASES = (
    "real text, supervised",
    "real text, advantages",
    "random ids, supervised",
    "random ids, advantages",
)
"""Of real_text_bf16."""


def real_model(say: Say, folder: Path = RESULTS) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Heads and rows of the table of what bfloat16 costs the embedded model."""
    rows: list[tuple[str, str, str]] = []
    for name, dtype in PARITY:
        result = read(name, folder)
        what = f"{dtype}: {say('sampler–trainer logprob, mean and largest gap in nats')}"
        rows.append((what, _gap(result) if result else say(NOT_MEASURED), _link(name, result)))
    name = "real_text_bf16"
    result = read(name, folder)
    for case in CASES:
        figure = _errors(result, case) if result else say(NOT_MEASURED)
        what = f"{say('gradient in bfloat16, error and cosine, ours; PEFT')}: {say(case)}"
        rows.append((what, figure, _link(name, result)))
    return [say(head) for head in ("embedded model", "figure", "result")], rows


def _gap(result: Result) -> str:
    return f"{result['logprob_gap_mean']:.1e}, {result['logprob_gap_max']:.1e}"


def _errors(result: Result, case: str) -> str:
    found = result["cases"][case]
    return "; ".join(
        f"{found[s]['error']:.3f}, {found[s]['cosine']:.3f}" for s in ("engine", "peft")
    )


def _link(name: str, result: Result | None) -> str:
    script = "real_text_bf16" if name == "real_text_bf16" else "parity"
    made_by = f"[`{script}.py`](../../benchmarks/{script}.py)"
    return (
        f"{made_by}, [`{name}.json`](../../benchmarks/results/{name}.json)" if result else made_by
    )
