"""Durations as people and Slurm write them. All values are whole seconds; nothing here knows a clock."""

from __future__ import annotations

import re

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR

_NUMBER = "([0-9]{1,10})"
_COLONS = re.compile(rf"{_NUMBER}(?::{_NUMBER})?(?::{_NUMBER})?", re.ASCII)
_DAYS = re.compile(rf"{_NUMBER}-{_NUMBER}(?::{_NUMBER})?(?::{_NUMBER})?", re.ASCII)
_UNITS = re.compile(rf"(?:{_NUMBER} ?d)? ?(?:{_NUMBER} ?h)? ?(?:{_NUMBER} ?m(?:in)?)? ?(?:{_NUMBER} ?s)?", re.ASCII)
_NO_LIMIT = frozenset({"UNLIMITED", "INFINITE", "PARTITION_LIMIT", "NONE"})
_SHOWN = ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (1, "s"))


def parse_duration(text: str) -> int:
    """Read a duration in seconds: every time form of Slurm, or numbers with units.

    Slurm's forms (sbatch(1), ``--time``): ``minutes``, ``minutes:seconds``, ``hours:minutes:seconds``,
    ``days-hours``, ``days-hours:minutes``, ``days-hours:minutes:seconds``. With units, largest first: ``90s``,
    ``90m``, ``4h``, ``1d``, ``1h30m``, and what :func:`format_duration` writes. Raises ``ValueError`` otherwise.
    """
    bare = text.strip()
    if found := _COLONS.fullmatch(bare):
        return _colons([int(part) for part in found.groups() if part is not None])
    if found := _DAYS.fullmatch(bare):
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return days * DAY + hours * HOUR + minutes * MINUTE + seconds
    found = _UNITS.fullmatch(bare)
    if found is None or not any(found.groups()):
        raise ValueError(f"{text!r} is not a duration; write 90m, 4h, 1d, or a time as Slurm takes it (1-12:00:00).")
    return sum(int(part or 0) * unit for part, (unit, _) in zip(found.groups(), _SHOWN, strict=True))


def parse_limit(text: str) -> int | None:
    """Read a time limit in seconds; ``None`` where Slurm says that there is none (or the partition's).

    Raises ``ValueError`` for anything that is neither.
    """
    if text.strip().upper() in _NO_LIMIT:
        return None
    return parse_duration(text)


def format_duration(seconds: int) -> str:
    """Write a duration for people, exactly and without zero parts: ``4 h``, ``15 min``, ``1 d 2 h``, ``45 s``."""
    if seconds == 0:
        return "0 s"
    parts: list[str] = []
    rest = abs(seconds)
    for unit, name in _SHOWN:
        amount, rest = divmod(rest, unit)
        if amount:
            parts.append(f"{amount} {name}")
    return ("-" if seconds < 0 else "") + " ".join(parts)


def slurm_minutes(seconds: int) -> int:
    """The whole minutes, rounded up, in which Slurm keeps a time limit of so many seconds."""
    return -(-seconds // MINUTE)


def _colons(parts: list[int]) -> int:
    """``minutes``, ``minutes:seconds`` or ``hours:minutes:seconds``."""
    if len(parts) == 1:
        return parts[0] * MINUTE
    if len(parts) == 2:
        return parts[0] * MINUTE + parts[1]
    return parts[0] * HOUR + parts[1] * MINUTE + parts[2]
