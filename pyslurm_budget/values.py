"""Values as people write them in TOML files, read exactly or refused with a sentence.

Each reader takes what :func:`read_toml` found and raises ``ValueError`` whose text says what was found and what is
accepted; the caller adds the file and the key. Nothing falls back to a default.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from pyslurm_budget.domain.slices import MOST_PARTS
from pyslurm_budget.domain.times import parse_duration

if TYPE_CHECKING:
    from collections.abc import Iterable

_PART = re.compile(r"([0-9]{1,9})/([0-9]{1,9})", re.ASCII)


def read_toml(text: str) -> dict[str, Any]:
    """The document; decimal numbers become exact :class:`~fractions.Fraction`. Raises ``tomllib.TOMLDecodeError``."""
    return tomllib.loads(text, parse_float=_exact)


def _exact(text: str) -> Fraction | str:
    try:
        return Fraction(text)
    except ValueError:  # inf and nan are numbers to TOML, and to nobody here
        return text


def shown(value: object) -> str:
    """A found value as a person would recognise it in the file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Fraction):
        return str(value.numerator) if value.denominator == 1 else f"{float(value):g}"
    if isinstance(value, dict):
        return "a table"
    return repr(value) if isinstance(value, str) else str(value)


def fraction(value: object) -> Fraction:
    """An exact part of a whole: ``"2%"``, ``"1/3"``, ``0.02``, ``1``; never negative."""
    found: Fraction | None = None
    if isinstance(value, Fraction):
        found = value
    elif isinstance(value, int) and not isinstance(value, bool):
        found = Fraction(value)
    elif isinstance(value, str):
        found = _fraction_text(value.strip())
    if found is None or found < 0:
        accepted = 'accepted is a percentage such as "2%" or a fraction such as 0.02 or "1/3"'
        raise ValueError(f"found {shown(value)}; {accepted}")
    return found


def part(value: object) -> Fraction:
    """A part of one GPU, as a text so that it is exact: ``"1/7"``; above 0, at most 1, of at most 1000 parts."""
    text = value if isinstance(value, str) else ""
    found = _PART.fullmatch(text.strip())
    if found is None or not 0 < int(found[1]) <= int(found[2]) <= MOST_PARTS:
        raise ValueError(f'found {shown(value)}; accepted is a part of a GPU in quotes, "1/7" to "1/1"')
    return Fraction(int(found[1]), int(found[2]))


def _fraction_text(text: str) -> Fraction | None:
    try:
        if text.endswith("%"):
            return Fraction(text[:-1].rstrip()) / 100
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        return None


def duration(value: object) -> int:
    """Seconds of ``"90s"``, ``"15m"``, ``"4h"``, ``"7d"`` or one of Slurm's forms (``"1-12:00:00"``).

    A bare number is refused: to Slurm it means minutes, to most people seconds.
    """
    accepted = 'accepted is a time such as "90s", "15m", "4h", "7d" or Slurm\'s "days-hours:minutes:seconds"'
    if not isinstance(value, str) or value.strip().isdigit():
        raise ValueError(f"found {shown(value)}; {accepted}")
    try:
        found = parse_duration(value)
    except ValueError:
        found = None
    if found is None:
        raise ValueError(f"found {shown(value)}; {accepted}")
    return found


def whole(value: object) -> int:
    """A whole number, 0 or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"found {shown(value)}; accepted is a whole number, 0 or more")
    return value


def yes_no(value: object) -> bool:
    """``true`` or ``false``."""
    if value is True or value is False:
        return value
    raise ValueError(f"found {shown(value)}; accepted is true or false")


def text(value: object) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"found {shown(value)}; accepted is a text in quotes that is not empty")
    return value


def texts(value: object) -> tuple[str, ...]:
    """A list of texts, none empty, none twice."""
    if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
        raise ValueError(f'found {shown(value)}; accepted is a list of texts such as ["a100", "h100"]')
    twice = sorted(item for item, count in Counter(value).items() if count > 1)
    if twice:
        raise ValueError(f"{twice[0]!r} is listed twice")
    return tuple(value)


def nearest(name: str, known: Iterable[str]) -> str:
    """``" (did you mean X?)"`` for the closest known name, else nothing."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else ""
