r"""Numbers as people and models write them, found in a text and read exactly.

    -3   +7   -.5   1,234.5   1 234   1'234   1_000   12%   50 percent   3/4   1 1/2   ½
    $5   -€3.20   6.02e23   1.5 × 10^3   2^{10}   \frac{-1}{2}   1\frac{1}{2}   1{,}234   −4

What is written in a way that people read differently is a numeral without a value: `1,23` (a decimal
comma?), `1.234,5`, `12:30`, `1.2.3`, `3/4/2025`. So is what is too large to hold. What belongs to a
word is no numeral: `x2`, `COVID-19`, `2nd`, `m^2`, `a_1`.
"""

import re
import unicodedata
from collections.abc import Iterator
from fractions import Fraction

MAX_DIGITS = 1000
"""Of a numeral, and of the exponent's size: beyond, a numeral has no value. 1e999999999 is nine
characters of text and a gigabyte of integer."""

_LETTER = r"A-Za-zÀ-ÖØ-öø-ɏͰ-ϿЀ-ӿ"
"""Letters that numbers are glued to within a word. Not those of scripts without spaces: a Chinese
answer may well be the character before the number."""

_SPACES = "\u0020\u00a0\u2009\u202f"
_RUN = rf"(?:\d{{1,3}}(?:[{_SPACES}]\d{{3}})+(?!\d)|\d|\.\d)[\d.,_'’:]*"
_EXPONENT = r"[+-]?\d+"


def _braced(name: str) -> str:
    """One argument of \frac that is a number."""
    return rf"\{{\s{{0,3}}(?P<{name}_sign>[+-])?\s{{0,3}}(?P<{name}>{_RUN})\s{{0,3}}\}}"


_PIECE = re.compile(
    rf"""
      (?P<script> [\^_] \s?(?:\{{[^{{}}]*\}}|[+-]?\w+) )       # an exponent or index of something
    | (?P<word> [{_LETTER}][{_LETTER}\d_]*(?:-\d+)? )          # x2, COVID-19
    | (?P<sign> [+-]\s{{0,3}}(?=[\d.\\$€£¥₹₩]) )?
      (?: \\?[$€£¥₹₩]\s?(?=[\d.\\]) )?
      (?: (?P<whole> \d{{1,3}}(?=\s?\\[dtc]?frac) | \d{{1,3}}(?=\s\d{{1,9}}\s?/\s?\d) )\s? )?
      (?P<number>
        \\[dtc]?frac \s{{0,3}}
          (?: {_braced("top")}\s{{0,3}}{_braced("bottom")} | (?P<top_digit>\d)\s?(?P<bottom_digit>\d) )
      | (?P<run> {_RUN} )
        (?: [eE](?P<exponent>{_EXPONENT}) )?
        (?: \s{{0,3}}(?:×|\\times|\\cdot|·|\*|x)\s{{0,3}}10\s?(?:\^|\*\*)\s?
            \{{?\s?(?P<tens>{_EXPONENT})\s?\}}?
          | (?:\^|\*\*)(?P<power>{_EXPONENT})
          | \^\s?\{{\s?(?P<power_in_braces>{_EXPONENT})\s?\}}
        )?
        (?: \s?/\s?(?P<below>{_RUN}) )?
      )
      (?P<percent> \s?(?:\\?%|(?i:per\s?cent)(?![{_LETTER}])) )?
      (?P<ordinal> (?:st|nd|rd|th)(?![{_LETTER}]) )?
      (?P<more>
        (?: \s?/\s?(?=\d) | \^(?!\{{?(?:\\circ|°)) | \*\*(?=\d) )[^\s,;]*   # 3/4/2025, 2^x, 10^10^10
      | \s?\\(?:pi|sqrt|[dtc]?frac)(?![A-Za-z]) | \s?[π√]
      )?
    | \\[A-Za-z]+                                              # another LaTeX command
    """,
    re.VERBOSE,
)

_WELL_FORMED = re.compile(
    rf"(?:\d+|\d+(?:_\d+)+|[1-9]\d{{0,2}}(?P<mark>[,'’{_SPACES}])\d{{3}}(?:(?P=mark)\d{{3}})*)?"
    r"(?:\.(?P<decimals>\d+))?"
)
_PART_OF_MORE = re.compile(r"[/√]\s?$|(?<!text)(?<!rm)(?<!bf)(?<!box)(?<!boxed)\s?\{\s?$")
r"""Before a numeral: what makes it a part of something that is no number, as in x/2 or \sqrt{2}."""


class Numeral:
    """One number as it stands in a text that `plain` made. It is read when it is asked for."""

    def __init__(self, piece: re.Match[str]) -> None:
        self._piece = piece

    @property
    def is_percent(self) -> bool:
        """Then `value` is the number before the sign: 50 for 50 %."""
        return self._piece["percent"] is not None

    @property
    def around(self) -> tuple[str, str]:
        """The text before it and after it."""
        text = self._piece.string
        return text[: self._piece.start()], text[self._piece.end() :]

    @property
    def value(self) -> Fraction | None:
        """None: it can be read in several ways, is too large, or is part of a larger expression."""
        piece = self._piece
        if piece["more"] or _PART_OF_MORE.search(_before(piece)):
            return None
        value = _value(piece)
        return -value if value is not None and _is_negative(piece) else value


def numerals(plain_text: str) -> Iterator[Numeral]:
    """Every numeral of a text that `plain` made, in order."""
    for piece in _PIECE.finditer(plain_text):
        if piece["number"] and not piece["ordinal"]:  # 2nd is a place in an order, not an amount
            yield Numeral(piece)


_SIMPLER = str.maketrans("−–‐‑－﹣＋％．⁄", "------+%./")
_SUPERSCRIPT = re.compile("[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_VULGAR = re.compile("[¼-¾⅐-⅞↉]")


def plain(text: str) -> str:
    r"""The text with one way to write signs, fractions such as ½, powers such as ², and LaTeX's
    thousands (`1{,}234`, `1,\!234`, `1\,234`)."""
    text = text.translate(_SIMPLER).replace("\\!", "").replace("{,}", ",").replace("\\,", "\u2009")
    text = _SUPERSCRIPT.sub(lambda found: "^" + _plain_digits(found[0]), text)
    return _VULGAR.sub(lambda found: " " + _plain_digits(found[0]), text)


def _plain_digits(text: str) -> str:
    return unicodedata.normalize("NFKC", text).translate(_SIMPLER)


def _before(piece: re.Match[str]) -> str:
    return piece.string[max(0, piece.start() - 12) : piece.start()]


def _is_negative(piece: re.Match[str]) -> bool:
    """Whether the minus before a numeral is its sign: not in 5-7 and not in x - 5."""
    sign = piece["sign"]
    if not sign or sign[0] != "-":
        return False
    if sign == "-":
        return not re.search(rf"[\d{_LETTER})\]}}%]$", _before(piece))
    return re.search(r"[=:({$≈]\s*$", _before(piece)) is not None  # a list's bullet is no sign


def _value(piece: re.Match[str]) -> Fraction | None:
    value = _latex_fraction(piece) if piece["run"] is None else _written_out(piece)
    if value is None or piece["whole"] is None:
        return value
    return int(piece["whole"]) + value if 0 <= value < 1 else None


def _latex_fraction(piece: re.Match[str]) -> Fraction | None:
    if piece["top_digit"]:
        return _divided(Fraction(piece["top_digit"]), Fraction(piece["bottom_digit"]))
    value = _divided(_read_run(piece["top"]), _read_run(piece["bottom"]))
    is_negative = (piece["top_sign"] == "-") != (piece["bottom_sign"] == "-")
    return -value if value is not None and is_negative else value


def _written_out(piece: re.Match[str]) -> Fraction | None:
    """A run of digits with what scales it: e5, × 10^5, ^5, /5."""
    value = _read_run(piece["run"])
    for tens in (piece["exponent"], piece["tens"]):
        if tens is not None and value is not None:
            exponent = _small(tens)
            value = None if exponent is None else value * Fraction(10) ** exponent
    power = piece["power"] or piece["power_in_braces"]
    if power and value is not None:
        value = _raised(value, _small(power))
    return _divided(value, _read_run(piece["below"])) if piece["below"] else value


def _read_run(run: str) -> Fraction | None:
    run = run.rstrip(".,_'’:")
    if len(run) > MAX_DIGITS or not (form := _WELL_FORMED.fullmatch(run)):
        return None
    decimals = len(form["decimals"] or "")
    return Fraction(int(re.sub(r"\D", "", run)), 10**decimals)


def _raised(value: Fraction, exponent: int | None) -> Fraction | None:
    if exponent is None or (value == 0 and exponent < 0):
        return None
    bits = max(value.numerator.bit_length(), value.denominator.bit_length())
    return value**exponent if bits * abs(exponent) < 4 * MAX_DIGITS else None


def _small(exponent: str) -> int | None:
    """The exponent, unless it makes a number that is too large to hold."""
    if len(exponent) > len(str(MAX_DIGITS)) + 1:
        return None
    return int(exponent) if abs(int(exponent)) <= MAX_DIGITS else None


def _divided(top: Fraction | None, bottom: Fraction | None) -> Fraction | None:
    return None if top is None or not bottom else top / bottom
