"""The virtual environment that scripts/test or scripts/quickstart has made, for scripts that need the package."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENVS = (ROOT / ".venv" / "test", ROOT / ".venv" / "sbudget")
MISSING = 2


def enter(name: str, script: str) -> None:
    """Start the script anew in it; without one, say so and end with status 2."""
    for venv in VENVS:
        if (venv / "bin" / "sbudget").exists():
            python = str(venv / "bin" / "python")  # the whole path: it tells Python which environment it is
            os.execv(python, [python, script, *sys.argv[1:]])
    print(f"{name}: sbudget is not installed; run scripts/test or scripts/quickstart once", file=sys.stderr)
    sys.exit(MISSING)
