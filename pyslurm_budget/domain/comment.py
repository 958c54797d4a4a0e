"""The contract that a job declares in its comment: ``min-runtime=4h``, one token beside other text (design 4.4)."""

from __future__ import annotations

import re

from pyslurm_budget.domain.times import parse_duration

_TOKEN = re.compile(r"(?:^|[\s,;])min-runtime=([^\s,;]*)")


def declared_minimum(comment: str) -> int | None:
    """Declared minimum runtime in seconds; ``None`` if none is declared, 0 for "spare, please".

    Raises ValueError with one sentence if the value cannot be read: it never becomes 0 silently.
    """
    found = _TOKEN.search(comment)
    if found is None:
        return None
    try:
        return parse_duration(found.group(1))
    except ValueError as error:
        raise ValueError(f"min-runtime={found.group(1)}: {error}") from error
