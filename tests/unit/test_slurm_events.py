"""Node events and reservations by sacctmgr: what is asked for, and how answers are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyslurm_budget.domain.holding import Holding, NodeEvent
from pyslurm_budget.errors import SlurmdbdError, SlurmOutputError, SlurmPermissionError
from pyslurm_budget.slurm.events import SlurmHistory, accounts_of, events_of, holdings_of
from pyslurm_budget.slurm.run import Runner
from tests.unit import slurm_fakes

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.slurm_fakes import Fakes

T = 1_796_101_445


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fakes:
    return slurm_fakes.make(tmp_path, monkeypatch)


def test_events_with_a_bar_or_a_line_break_in_their_reason() -> None:
    text = f"n1|{T}|{T + 1}|DRAIN|gpu ecc|err=1 x\nn2|{T}|Unknown|DOWN*|two\nlines\nn3|{T}|0|DOWN|\n"
    assert events_of(text) == (
        NodeEvent("n1", T, T + 1, "DRAIN", "gpu ecc|err=1 x"),
        NodeEvent("n2", T, None, "DOWN*", "two\nlines"),
        NodeEvent("n3", T, None, "DOWN"),
    )
    assert events_of("") == ()


@pytest.mark.parametrize("line", ["n1", f"|{T}|{T}|DOWN|", "n1|Unknown|0|DOWN|", "n1|yesterday|0|DOWN|x"])
def test_an_event_that_cannot_be_read_is_no_empty_answer(line: str) -> None:
    with pytest.raises(SlurmOutputError, match="show event"):
        events_of(line)


def test_reservations_name_accounts_by_their_associations() -> None:
    text = (
        f"7|bought|{T}|{T + 60}|IGNORE_JOBS,SPEC_NODES|3,5,5,-9,12|n[1-2]|cpu=32\n"
        f"8|users|{T}|{T + 60}||12|n3|cpu=8,gres/gpu=2\n"
        f"9|maint|{T}|{T - 5}|MAINT|||\n"
    )
    assert holdings_of(text, {"3": "nlp", "5": "bio", "9": "vision"}) == (
        Holding(7, "bought", T, T + 60, ("nlp", "bio"), ("IGNORE_JOBS", "SPEC_NODES"), ("n1", "n2"), None, 32),
        Holding(8, "users", T, T + 60, (), (), ("n3",), 2, 8),
        Holding(9, "maint", T, T, (), ("MAINT",)),
    )


@pytest.mark.parametrize(
    "line", ["7|x", f"x|r|{T}|{T}||||", f"7|r|0|{T}||||", f"7|r|{T}|{T}||||cpu", f"7|r|{T}|Unknown||||"]
)
def test_a_reservation_that_cannot_be_read_is_no_empty_answer(line: str) -> None:
    with pytest.raises(SlurmOutputError, match="show reservation"):
        holdings_of(line, {})


def test_accounts_are_the_associations_without_a_user() -> None:
    assert accounts_of("1|root|\n2|root|root\n3|nlp|\n4|nlp|alice") == {"1": "root", "3": "nlp"}
    for text in ("", "1|nlp"):
        with pytest.raises(SlurmOutputError, match="show assoc"):
            accounts_of(text)


def test_times_are_asked_for_and_printed_without_a_zone(fakes: Fakes) -> None:
    fakes.answer("show event", f"n1|{T}|Unknown|DOWN|x\n")
    fakes.answer("show reservation", f"7|r|{T}|{T + 60}||3|n1|cpu=8\n")
    fakes.answer("show assoc", "3|nlp|\n")
    history = SlurmHistory(Runner(), "alpha")
    assert history.node_events(T, T + 60) == (NodeEvent("n1", T, None, "DOWN", "x"),)
    assert history.reservations(5, T) == (Holding(7, "r", T, T + 60, ("nlp",), (), ("n1",), None, 8),)
    calls = [(name, arguments, environment) for name, arguments, _, environment in fakes.calls()]
    assert [arguments for _, arguments, _ in calls] == [
        ["-nP", "show", "event", "clusters=alpha", "event=node", f"start=uts{T}", f"end=uts{T + 60}",
         "format=NodeName,Start,End,State,Reason"],
        ["-nP", "show", "reservation", "clusters=alpha", "start=uts1000000000", f"end=uts{T}",
         "format=ID,Name,Start,End,Flags,Associations,NodeNames,TRES"],
        ["-nP", "show", "assoc", "clusters=alpha", "format=ID,Account,User"],
    ]  # fmt: skip
    assert {(e["TZ"], e["SLURM_TIME_FORMAT"]) for _, _, e in calls} == {("UTC", "%s")}


def test_no_reservation_is_an_answer_and_needs_no_accounts(fakes: Fakes) -> None:
    fakes.answer("show reservation")
    assert SlurmHistory(Runner(), "alpha").reservations(T, T + 1) == ()


@pytest.mark.parametrize(
    ("said", "status", "expected"),
    [
        ("sacctmgr: error: Problem talking to the database: Connection refused", 1, SlurmdbdError),
        ("sacctmgr: error: Sending PersistInit msg: Connection refused", 0, SlurmdbdError),
        (" Error with request: Access/permission denied", 1, SlurmPermissionError),
    ],
)
def test_a_failed_read_raises(fakes: Fakes, said: str, status: int, expected: type[Exception]) -> None:
    fakes.answer("show", "", said, status)
    history = SlurmHistory(Runner(), "alpha")
    with pytest.raises(expected):
        history.node_events(T, T + 1)
    with pytest.raises(expected):
        history.reservations(T, T + 1)
