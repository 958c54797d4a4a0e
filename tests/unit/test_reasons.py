"""Reasons and numbers in words: every code has a sentence, with and without its numbers; numbers are exact."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyslurm_budget
from pyslurm_budget.domain import wording
from pyslurm_budget.domain.plan import Reason
from pyslurm_budget.domain.reasons import TEMPLATES, about, sentence

PACKAGE = Path(pyslurm_budget.__file__).parent
GPU_H = wording.MGPU_S_PER_GPU_H


def test_every_code_that_the_code_uses_has_a_sentence() -> None:
    used = {
        code
        for file in PACKAGE.rglob("*.py")
        for code in re.findall(r'Reason\(\s*"([a-z-]+)"', file.read_text(encoding="utf-8"))
    }
    assert len(used) > 20
    assert used - TEMPLATES.keys() == set()


@pytest.mark.parametrize("code", sorted(TEMPLATES))
def test_every_code_has_words_with_all_numbers_and_without_any(code: str) -> None:
    names = {name for template in TEMPLATES[code] for name in re.findall(r"\{(\w+)", template)}
    for numbers in ({}, dict.fromkeys(names, 7)):
        words = sentence(Reason(code, numbers))
        assert words
        assert "{" not in words
        assert not words.endswith(".")


def test_richest_template_first() -> None:
    for code, templates in TEMPLATES.items():
        counts = [len(set(re.findall(r"\{(\w+)", template))) for template in templates]
        assert counts == sorted(counts, reverse=True), code


def test_an_unknown_code_says_its_numbers() -> None:
    assert sentence(Reason("of-another-release", {"b": 2, "a": "x"})) == "of-another-release (a=x, b=2)"
    assert sentence(Reason("of-another-release")) == "of-another-release"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (
            Reason("admitted", {"price": 32 * GPU_H, "budget": "dolma", "pool": "a100"}),
            "backed: its contract of 32 GPU-h fits the budget of dolma",
        ),
        (
            Reason("not-admitted-headroom", {"price": 384 * GPU_H, "limit": "nlp", "left": 32 * GPU_H}),
            "spare: its contract needs 384 GPU-h, nlp has 32 left",
        ),
        (
            Reason("not-admitted-headroom", {"price": 384 * GPU_H, "limit": "olmo", "left": -489 * GPU_H}),
            "spare: its contract needs 384 GPU-h, olmo has nothing left",
        ),
        (
            Reason("not-admitted-ceiling", {"limit": "olmo", "left": 1500, "price": 8000}),
            "spare: olmo may have 1.5 more GPUs under contract at one time, this needs 8",
        ),
        (
            Reason(
                "displaced-for",
                {
                    "for": "48190",
                    "for_budget": "bio",
                    "budget": "olmo",
                    "for_load": 7,
                    "load": 105,
                    "contract": 6 * 3600,
                    "since": 1764601920,
                },
            ),
            "gives way to 48190 (bio, load 7 %): olmo was at load 105 %; contract of 6 h kept since "
            "2025-12-01 15:12 UTC",
        ),
    ],
)
def test_sentences(reason: Reason, words: str) -> None:
    assert sentence(reason) == words


def test_a_note_names_its_job() -> None:
    assert about(Reason("declared-spare", {"job": "12_3"})) == "12_3: spare, as it asked to be"
    assert about(Reason("declared-spare")) == "spare, as it asked to be"


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        (0, "0"),
        (GPU_H // 10, "0.1"),
        (GPU_H * 95 // 10, "9.5"),
        (GPU_H * 9, "9"),
        (GPU_H * 99999 // 10000, "10"),
        (GPU_H * 26904, "26,904"),
        (-GPU_H * 489, "-489"),
        (-GPU_H // 2, "-0.5"),
        (1, "0"),
    ],
)
def test_gpu_hours(amount: int, words: str) -> None:
    assert wording.gpu_hours(amount) == words


@given(st.integers(-(10**15), 10**15))
def test_plain_gpu_hours_are_within_half_a_thousandth(amount: int) -> None:
    assert abs(Fraction(wording.plain_gpu_hours(amount)) - Fraction(amount, GPU_H)) <= Fraction(1, 2000)


@given(st.integers(-(10**9), 10**9))
def test_gpus_are_exact(rate: int) -> None:
    assert Fraction(wording.gpus(rate)) == Fraction(rate, 1000)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (45, "45 s"),
        (150, "2 min 30 s"),
        (900, "15 min"),
        (12540, "3 h 29 min"),
        (86400, "24 h"),
        (7 * 86400, "7 d"),
        (526_000, "6 d 2 h"),
        (-60, "-1 min"),
    ],
)
def test_spans(seconds: int, words: str) -> None:
    assert wording.span(seconds) == words


def test_percent_without_a_whole_is_not_a_number() -> None:
    assert wording.percent(1, 0) == "-"
    assert wording.percent(17762, 16934) == "105 %"
