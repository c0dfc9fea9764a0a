"""What was said in an iteration, as files: prompts, sampled tokens with logprobs, rewards.

Two beside each other in `iteration_<six digits>/`: `train_logtree.json` for programs and
`train.html` for people (`eval_<name>_logtree.json` and `.html` for an evaluation).
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from mint.recipe.pages.transcript_page import transcript_page
from mint.recipe.pages.transcription import SCHEMA_VERSION, Decodes, Played, transcribe
from mint.recipe.pages.transcription import TranscriptGroup as TranscriptGroup
from mint.recipe.stores.run_folder import iteration_folder
from mint.recipe.stores.whole_files import write_whole

_log = logging.getLogger("mint.recipe.transcripts")


def write_transcripts(
    folder: Path, split: str, iteration: int, groups: Sequence[Played], tokenizer: Decodes
) -> None:
    """Write both files of an iteration. It decodes token by token: call it off the event loop.

    Args:
        folder: the run's; `iteration_<six digits>` is made below it.
        split: "train", or "eval/<name>".
        groups: as many as are to be shown, no more.
    """
    transcript = transcribe(split, iteration, groups, tokenizer)
    stem = file_stem(split)
    into = iteration_folder(folder, iteration)
    into.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"schema_version": SCHEMA_VERSION, **asdict(transcript)})
    (into / f"{stem}_logtree.json").write_text(text, encoding="utf-8")
    try:
        write_whole(into / f"{stem}.html", transcript_page(transcript))
    except Exception as error:  # an extra: what was said is in the other file, and the run goes on
        _log.warning("%s could not be written: %s", into / f"{stem}.html", error)


def file_stem(split: str) -> str:
    """How the files of a split begin: "train", "eval_test"."""
    return split.replace("/", "_")
