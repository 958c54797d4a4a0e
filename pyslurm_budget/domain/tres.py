"""Reading Slurm's TRES and GRES texts.

A TRES text lists amounts as ``name=count`` (``cpu=2,gres/gpu=4,gres/gpu:a100=4,mem=512000M,node=1``). The untyped
``gres/gpu`` is the total and the typed entries are its breakdown, so the two are never added; only where there is no
untyped entry is the total the sum of the typed ones. A GRES text lists what a node has or a job asks for
(``gpu:a100:4(S:0-1)``, ``gres/gpu:2``). A text that was cut in the middle is an error, never fewer GPUs.
"""

from __future__ import annotations

import re
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import Tres

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NOTHING = frozenset({"", "(null)", "N/A", "NONE"})
_UNSET = frozenset({"18446744073709551614", "18446744073709551615", "-2", "-1", "NONE"})
_GPU = "gres/gpu"
_SHARD = "gres/shard"
_COUNT = re.compile(r"([0-9]{1,20})([kKmMgGtTpP]?)", re.ASCII)
_AMOUNT = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,9})?)([KMGTP]?)(?:i?B)?[cn]?", re.ASCII)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_BRACKETS = re.compile(r"\([^()]*\)")


def parse_tres(text: str) -> Tres:
    """Read an AllocTRES, ReqTRES, TRES or CfgTRES text; unknown TRES are ignored, an empty text holds nothing.

    ``gpus`` is ``None`` if GPUs are named but their count is one of Slurm's "not set" markers. Raises ``ValueError``
    for a text that is cut or malformed.
    """
    if text.strip() in _NOTHING:
        return Tres()
    entries = dict(_entries(text))
    typed = _typed(entries, _GPU, text)
    shards = _known_count(entries, _SHARD, text) or sum(_typed(entries, _SHARD, text).values())
    return Tres(
        cpus=_known_count(entries, "cpu", text),
        memory_mb=_memory_mb(entries.get("mem", "0"), text),
        nodes=_known_count(entries, "node", text),
        gpus=_total_gpus(entries, typed, text),
        gpus_by_type=MappingProxyType(typed),
        shards=shards,
    )


def parse_memory(text: str) -> int:
    """Read an amount of memory (``512000M``, ``1.5T``, ``64G``) as MiB, rounded up; without a suffix it is MiB.

    Raises ``ValueError`` if it is not an amount.
    """
    return _memory_mb(text.strip(), text)


def parse_gres_gpus(text: str, name: str = "gpu") -> tuple[int, Mapping[str, int]]:
    """Read the GPUs of a GRES text, as (count, count by type); other GRES and TRES are ignored. ``name`` is the GRES
    that is counted.

    Accepts all spellings of 22.05 to 26.05: ``gres:gpu:a100:2``, ``gres/gpu:2``, ``gres/gpu=2``,
    ``gpu:a100:4(S:0-1)``, ``gpu`` and ``gpu:tesla`` (one GPU each). Raises ``ValueError`` for a text that is cut.
    """
    bare = _BRACKETS.sub("", text).strip()
    if bare in _NOTHING:
        return 0, MappingProxyType({})
    untyped, total = 0, None
    typed: dict[str, int] = {}
    for item in bare.split(","):
        words = _words_of(name, item, text)
        if words is None:
            continue
        kind, count = _gres_entry(words, text)
        if kind:
            typed[kind] = typed.get(kind, 0) + count
        elif "=" in item:
            total = count
        else:
            untyped += count
    if total is None:
        total = untyped + sum(typed.values())
    return total, MappingProxyType(typed)


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Each ``name=value`` of a TRES text; raises on a cut entry and on a name that comes twice."""
    seen: set[str] = set()
    for item in text.strip().split(","):
        name, _, value = item.rpartition("=")
        if not name or not value:
            raise ValueError(f"The TRES text {text!r} is cut or malformed at {item!r}.")
        if name in seen:
            raise ValueError(f"The TRES text {text!r} names {name} twice.")
        seen.add(name)
        yield name, value


def _typed(entries: Mapping[str, str], name: str, text: str) -> dict[str, int]:
    """The entries ``name:type`` that are set, by type."""
    return {
        entry.removeprefix(name + ":"): _count(value, text)
        for entry, value in entries.items()
        if entry.startswith(name + ":") and value not in _UNSET
    }


def _total_gpus(entries: Mapping[str, str], typed: Mapping[str, int], text: str) -> int | None:
    """The untyped total, else the sum of the typed entries; ``None`` where only markers are given."""
    total = entries.get(_GPU)
    if total is not None and total not in _UNSET:
        return _count(total, text)
    if typed:
        return sum(typed.values())
    named = total is not None or any(name.startswith(_GPU + ":") for name in entries)
    return None if named else 0


def _known_count(entries: Mapping[str, str], name: str, text: str) -> int:
    """The count of one TRES, 0 where it is absent or not set."""
    value = entries.get(name, "0")
    return 0 if value in _UNSET else _count(value, text)


def _count(value: str, text: str) -> int:
    """A whole count, with Slurm's suffixes (k = 1024)."""
    found = _COUNT.fullmatch(value)
    if found is None:
        raise ValueError(f"The TRES text {text!r} has {value!r} where a count is expected.")
    return int(found[1]) << (10 * _POWERS[found[2].upper()])


def _memory_mb(value: str, text: str) -> int:
    """MiB, rounded up; Slurm's unit without a suffix is MiB."""
    if value.removesuffix("M") in _UNSET:
        return 0
    found = _AMOUNT.fullmatch(value)
    if found is None:
        raise ValueError(f"The TRES text {text!r} has {value!r} where an amount of memory is expected.")
    mebibytes = Fraction(found[1]) * Fraction(1024) ** (_POWERS[found[2] or "M"] - 2)
    return -(-mebibytes.numerator // mebibytes.denominator)


def _words_of(name: str, item: str, text: str) -> list[str] | None:
    """The words of one GRES entry after its name if that is the one looked for, else ``None``."""
    words = re.split(r"[:/=]", item.strip())
    if words[0] == "gres":
        del words[0]
    if not all(words):
        raise ValueError(f"The GRES text {text!r} is cut or malformed at {item!r}.")
    if not words or words[0] != name:
        return None
    return [word for word in words[1:] if word != "no_consume"]


def _gres_entry(words: list[str], text: str) -> tuple[str, int]:
    """Type (empty for none) and count of one GPU entry: ``[]``, ``[count]``, ``[type]`` or ``[type, count]``."""
    count = 1
    if words and _COUNT.fullmatch(words[-1]):
        count = _count(words.pop(), text)
    if len(words) > 1:
        raise ValueError(f"The GRES text {text!r} has an entry with no readable count.")
    return (words[0] if words else ""), count
