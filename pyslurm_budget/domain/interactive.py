"""Jobs that count as interactive (design 4.4): a session in a browser is a batch job, but to requeue it is to end it.

They are told by partition, by QOS, or by a pattern of names, in which ``*`` is any text and ``?`` any character;
``slurm_conf/job_submit.lua`` reads the same patterns. Nothing is gained by such a name: the whole time limit becomes
the contract, and is paid for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Interactive:
    """What makes a job interactive. QOS are managed ones: a spare twin counts as its managed QOS."""

    partitions: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def matches(self, partitions: Iterable[str], qos: str, name: str) -> bool:
        """Whether a job that may go to these partitions, with this managed QOS and this name, counts as one."""
        if qos in self.qos or any(partition in self.partitions for partition in partitions):
            return True
        return any(_pattern(pattern).fullmatch(name) for pattern in self.names)


@lru_cache
def _pattern(text: str) -> re.Pattern[str]:
    words = {"*": ".*", "?": "."}
    return re.compile("".join(words.get(letter) or re.escape(letter) for letter in text), re.DOTALL)
