"""How alike two texts are, from 0 to 1: rewards that grow as a text gets better."""

from mint.recipe.grading.optional import needed
from mint.recipe.grading.texts import References, as_references

MAX_CHARS = 20_000
"""Of a text that is compared closely. The time grows with the product of both lengths; at this one it
is hundredths of a second."""


def edit_similarity(text: str, expected: References) -> float:
    """The share of the longer text that needs no edit to become the other. 1: equal.

        1 - distance / max(len(text), len(expected))

    The distance is Levenshtein's: characters inserted, deleted or replaced. What a text has beyond
    `MAX_CHARS` counts as to be deleted. Of several expected texts, the one most alike.

    Raises:
        ValueError: an expected text is longer than `MAX_CHARS`.
        ImportError: the extra `grading` is not installed.
    """
    distance = needed("rapidfuzz.distance", "edit_similarity").Levenshtein.distance
    start, beyond = text[:MAX_CHARS], max(0, len(text) - MAX_CHARS)
    return max(
        1.0 - (distance(start, one) + beyond) / max(len(text), len(one), 1)
        for one in _bounded(expected)
    )


def bleu(text: str, references: References) -> float:
    """Sentence BLEU: how many runs of up to four words the text shares with the references.

    Smoothed, since one sentence often has no run of four in common, which would make it 0: an order
    n without a match counts as 1 / (2^k * its n-grams) for the k-th such order. Texts are split as
    the WMT evaluations do (sacrebleu's `13a`; Chinese and Japanese need other metrics), and orders
    that a short text does not have are left out. A text beyond `MAX_CHARS` scores 0.

    Raises:
        ValueError: a reference is longer than `MAX_CHARS`.
        ImportError: the extra `grading` is not installed.

    Source: Papineni et al. 2002, doi:10.3115/1073083.1073135; smoothing: Chen and Cherry 2014,
    doi:10.3115/v1/W14-3346, method 3. Computed by sacrebleu (Post 2018, arXiv:1804.08771).
    """
    metrics = needed("sacrebleu.metrics.bleu", "bleu")
    wanted = _bounded(references)
    if len(text) > MAX_CHARS:
        return 0.0
    metric = metrics.BLEU(smooth_method="exp", effective_order=True)
    return min(1.0, max(0.0, metric.sentence_score(text, wanted).score / 100))


def _bounded(expected: References) -> list[str]:
    texts = as_references(expected)
    for one in texts:
        if len(one) > MAX_CHARS:
            raise ValueError(
                f"an expected text has {len(one)} characters; at most {MAX_CHARS} can be compared."
            )
    return texts
