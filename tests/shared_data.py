"""Where the recorded data lies that some tests read: beside the checkout, never inside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("SBUDGET_SHARED", Path(__file__).resolve().parents[2] / "shared"))


def shared(path: str) -> Path:
    """The file of the recorded data; skips where the data is absent, fails in CI, where it must be present."""
    found = ROOT / path
    if not found.exists():
        if os.environ.get("CI"):
            pytest.fail(f"recorded data missing: {found}")
        pytest.skip(f"recorded data not on this machine: {found}")
    return found
