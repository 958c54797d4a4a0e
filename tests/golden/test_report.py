"""The report of real saved accounting, with the right answers of the data's own README (section 3)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.calling import sbudget
from tests.shared_data import shared

# Job 201729: 1,024 GPUs for 79,396 s. Job 201844: 256 GPUs for 87,356 s, requeued, in three rows that are one run.
BY_ACCOUNT = """\
Account   User       Flavor      GPU-h    Charged  Suspended  Runs  Unknown
project   test_user  gpu     22,583.75  22,583.75       0.00     1        0
project1  test_user  gpu      6,211.98   6,211.98       0.00     1        0
Total                        28,795.73  28,795.73       0.00     2        0
"""
BY_DAY = """\
Day             GPU-h    Charged  Suspended  Runs  Unknown
2023-01-15  25,768.11  25,768.11       0.00     2        0
2023-01-16   3,027.63   3,027.63       0.00     2        0
Total       28,795.73  28,795.73       0.00     2        0
"""


@pytest.mark.parametrize(
    ("words", "table"),
    [
        (["--by", "account,user,flavor"], BY_ACCOUNT),
        (["--by", "day"], BY_DAY),
        (["-P", "-n", "--format=gpu_hours"], "22583.7511\n6211.9822\n"),
    ],
)
def test_who_used_what_in_a_file_that_somebody_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], table: str
) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    config = tmp_path / "sbudget.toml"
    config.write_text(f'cluster = "cluster"\n[ledger]\nurl = "sqlite:///{tmp_path}/l"\n[reports]\ntimezone = "UTC"\n')
    saved = shared("data/sacct/gcm/sample-sacct-multiple-multiline.txt")
    assert sbudget("--config", config, "sync", "--dump", saved).status == 0
    said = sbudget("--config", config, "report", "usage", *words)
    assert (said.status, said.out) == (0, table)
