"""GPUs from TRES and GRES texts: the public bug reports, properties, and what must be refused."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.domain.tres import parse_gres_gpus, parse_memory, parse_tres
from tests.shared_data import shared

KINDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789_.", min_size=1, max_size=12).filter(
    lambda kind: not kind[:1].isdigit() and kind != "no_consume"
)


def test_public_bug_reports_about_counting() -> None:
    vectors = json.loads(shared("data/vectors.json").read_text())
    tres = [v for v in vectors if v["kind"] == "gpu_count_from_alloctres"]
    gres = [v for v in vectors if v["kind"] == "gpu_count_from_gres"]
    assert len(tres) == 11
    assert len(gres) == 1
    for vector in tres:
        if vector["expected"] == "error":
            with pytest.raises(ValueError, match="cut or malformed"):
                parse_tres(vector["input"])
        else:
            assert parse_tres(vector["input"]).gpus == vector["expected"], vector
    for vector in gres:
        assert parse_gres_gpus(vector["input"])[0] == vector["expected"], vector


def test_all_parts_of_an_allocation() -> None:
    tres = parse_tres("billing=64,cpu=64,gres/gpu:a100=4,gres/gpu=4,mem=512000M,node=1")
    assert (tres.cpus, tres.memory_mb, tres.nodes, tres.gpus) == (64, 512000, 1, 4)
    assert dict(tres.gpus_by_type) == {"a100": 4}


@given(st.dictionaries(KINDS, st.integers(0, 10**6), max_size=4), st.booleans(), st.randoms())
def test_typed_entries_are_never_added_to_the_total(typed: dict[str, int], untyped: bool, random) -> None:  # type: ignore[no-untyped-def]
    total = sum(typed.values())
    entries = [f"gres/gpu:{kind}={count}" for kind, count in typed.items()]
    entries += [f"gres/gpu={total}"] if untyped else []
    entries += ["gres/gpumem=77", "gres/shard=8", "gres/shard:a100=8", "energy=9", "license/matlab@srv=3", "cpu=1"]
    random.shuffle(entries)
    tres = parse_tres(",".join(entries))
    assert tres.gpus == total
    assert dict(tres.gpus_by_type) == typed


@given(st.text("abcdegimnoprsu/:=,0123456789MG(). ", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_tres, parse_gres_gpus, parse_memory):
        try:
            parse(text)
        except ValueError as error:
            assert repr(text) in str(error)


@given(st.integers(1, 80))
def test_a_cut_text_never_counts_fewer_names_silently(length: int) -> None:
    whole = "billing=64,cpu=64,gres/gpu:a100=4,gres/gpu=4,mem=512000M,node=1"
    cut = whole[:length]
    if cut.rpartition(",")[2].rpartition("=")[2] == "" or "=" not in cut.rpartition(",")[2]:
        with pytest.raises(ValueError, match="cut or malformed"):
            parse_tres(cut)


@pytest.mark.parametrize(
    "text",
    ["cpu=2,", ",cpu=2", "cpu", "cpu=x", "node=", "gres/gpu=", "gres/gpu=four", "mem=4Q", "cpu=1,cpu=1"],
)
def test_refuses_a_damaged_tres_text(text: str) -> None:
    with pytest.raises(ValueError, match="TRES text"):
        parse_tres(text)


@pytest.mark.parametrize("marker", ["18446744073709551614", "-2", "NONE"])
def test_markers_are_not_numbers(marker: str) -> None:
    tres = parse_tres(f"cpu={marker},mem={marker},node={marker},gres/gpu={marker}")
    assert (tres.cpus, tres.memory_mb, tres.nodes) == (0, 0, 0)
    assert tres.gpus is None, "an unset count of GPUs is unknown, not 0"
    assert parse_tres(f"gres/gpu={marker},gres/gpu:a100=2").gpus == 2
    assert parse_tres(f"gres/gpu=3,gres/gpu:a100={marker}").gpus == 3


@pytest.mark.parametrize(
    ("text", "mebibytes"),
    [
        ("512000M", 512000), ("64G", 65536), ("1T", 1048576), ("1P", 1 << 30), ("1K", 1), ("1025K", 2),
        ("1.50G", 1536), ("0", 0), ("7", 7), ("0.01M", 1),
    ],
)  # fmt: skip
def test_memory_is_mebibytes_rounded_up(text: str, mebibytes: int) -> None:
    assert parse_memory(text) == mebibytes
    assert parse_tres(f"mem={text}").memory_mb == mebibytes


@given(st.decimals(min_value=0, max_value=10**6, places=2), st.sampled_from("KMGTP"))
def test_memory_is_never_less_than_said(amount, unit: str) -> None:  # type: ignore[no-untyped-def]
    exact = Fraction(str(amount)) * 1024 ** ("KMGTP".index(unit) + 1) / 1024**2
    assert 0 <= parse_memory(f"{amount}{unit}") - exact < 1


@pytest.mark.parametrize(
    ("text", "count", "typed"),
    [
        ("gres:gpu:a100:2", 2, {"a100": 2}),
        ("gres/gpu:2", 2, {}),
        ("gres/gpu=2", 2, {}),
        ("gres/gpu:a100=4", 4, {"a100": 4}),
        ("gres/gpu=4,gres/gpu:a100=4", 4, {"a100": 4}),
        ("gpu:a100:4(S:0-1)", 4, {"a100": 4}),
        ("gpu:a100:2(IDX:0,3),gpu:h100:1(IDX:5)", 3, {"a100": 2, "h100": 1}),
        ("gpu:a100:0(IDX:N/A)", 0, {"a100": 0}),
        ("gpu", 1, {}),
        ("gpu:tesla", 1, {"tesla": 1}),
        ("gpu:1g.10gb:3", 3, {"1g.10gb": 3}),
        ("gpu:2K", 2048, {}),
        ("gpu:1m", 1 << 20, {}),
        ("gpu:a100:4,shard:a100:8,mps:400,lustre:no_consume:4G", 4, {"a100": 4}),
        ("gpu:tesla:no_consume:2", 2, {"tesla": 2}),
        ("cpu=2,gres/gpu=1", 1, {}),
        ("", 0, {}),
        ("(null)", 0, {}),
        ("gres/gpumem:80", 0, {}),
    ],
)
def test_reads_every_spelling_of_gres(text: str, count: int, typed: dict[str, int]) -> None:
    found, by_type = parse_gres_gpus(text)
    assert (found, dict(by_type)) == (count, typed)


@pytest.mark.parametrize("text", ["gpu:", "gpu:a100:", "gres/gpu=", "gres/", "gpu:a100:x", "gpu:1,", "gpu:2:a100"])
def test_refuses_a_damaged_gres_text(text: str) -> None:
    with pytest.raises(ValueError, match="GRES text"):
        parse_gres_gpus(text)
