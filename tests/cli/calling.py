"""Calling ``sbudget`` in this process as a shell would: exit status, standard output, standard error."""

from __future__ import annotations

import contextlib
import io
from typing import NamedTuple

from pyslurm_budget.cli.main import main


class Said(NamedTuple):
    """What a call said."""

    status: int
    out: str
    err: str


def sbudget(*words: object) -> Said:
    """Run ``sbudget`` with these words."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([str(word) for word in words])
    return Said(status, out.getvalue(), err.getvalue())
