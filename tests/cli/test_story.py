"""The simulated story: all of it holds, and a product that does not do its work is found out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyslurm_budget.cli import story

LETTERS = "abcdefghi"


def test_every_step_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert story.main() == 0
    out = capsys.readouterr().out
    assert [line[0] for line in out.splitlines() if line[1:3] == ". " and line[0] in LETTERS] == list(LETTERS)
    assert "FAILED" not in out
    assert "9 steps held, 0 failed" in out


@pytest.mark.parametrize(
    ("wrong", "first"),
    [({"drain_after": 10_000}, "f"), ({"margin": 1000}, "e")],
)
def test_a_fault_is_told_and_ends_with_1(
    wrong: dict[str, int], first: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(story, "POLICY", replace(story.POLICY, **wrong))  # type: ignore[arg-type]
    assert story.main() == 1
    out = capsys.readouterr().out
    assert "FAILED" in out
    assert f"Failed: {first}" in out
