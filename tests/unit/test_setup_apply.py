"""Apply and remove as use cases: what is written down when, and what happens where something is in the way."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from pyslurm_budget.domain.model import Job, JobState, Reservation
from pyslurm_budget.domain.policy import ClassMap
from pyslurm_budget.errors import SlurmdbdError, SlurmRefusedError, SlurmSetupError, UnfinishedError
from pyslurm_budget.service.setup import Step
from pyslurm_budget.service.setup_apply import RECORD, Setup
from pyslurm_budget.service.setup_undo import PluginRecord, record_of
from tests.unit import made
from tests.unit.setup_model import Slurmdbd, site

DEFAULT = ClassMap()


@dataclass
class Memory:
    """Named values."""

    values: dict[str, str] = field(default_factory=dict)

    def get(self, name: str) -> str | None:
        return self.values.get(name)

    def put(self, name: str, value: str | None) -> None:
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = value


@dataclass
class Plugin:
    """A file as one word."""

    text: str = "site"
    kept: str = ""
    fails: bool = False

    def is_ready(self) -> bool:
        return self.text == "ours"

    def keep(self, known: PluginRecord | None, *, replace: bool) -> PluginRecord:
        self.kept = self.text
        return known or PluginRecord("/etc/slurm/job_submit.lua", "digest", "/var/lib/sbudget/kept")

    def install(self, *, replace: bool = False) -> str:
        if self.fails:
            raise SlurmSetupError("cannot be written")
        self.text = "ours"
        return "written"

    def give_back(self, known: PluginRecord, *, needed: bool) -> str:
        self.text = self.kept
        return "given back"


@dataclass
class Live:
    """A queue that the commands change."""

    jobs: dict[str, Job] = field(default_factory=dict)
    reservations: list[Reservation] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    updates: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def snapshot(self) -> Any:
        return SimpleNamespace(jobs=tuple(self.jobs.values()), reservations=tuple(self.reservations))

    def update_job(self, ref: str, **change: Any) -> None:
        if ref in self.refused:
            raise SlurmRefusedError("Job has already finished")
        self.updates.append((ref, change))
        if change.get("qos"):
            assert self.jobs[ref].state is JobState.PENDING, "Job is no longer pending execution"
            self.jobs[ref] = replace(self.jobs[ref], qos=change["qos"])
        if change.get("reservation") == "":
            self.jobs[ref] = replace(self.jobs[ref], reservation=None)

    def release(self, name: str) -> None:
        if any(job.reservation == name for job in self.jobs.values()):
            raise SlurmRefusedError("reservation in use")
        self.reservations = [r for r in self.reservations if r.name != name]


@dataclass
class Place:
    """A model site with everything that `setup` works on."""

    db: Slurmdbd = field(default_factory=site)
    memory: Memory = field(default_factory=Memory)
    plugin: Plugin = field(default_factory=Plugin)
    live: Live = field(default_factory=Live)
    said: list[str] = field(default_factory=list)
    paused: list[float] = field(default_factory=list)

    @property
    def setup(self) -> Setup:
        return Setup(DEFAULT, None, self.db, self.plugin, self.memory, self.said.append, self.paused.append)

    def apply(self) -> int:
        return self.setup.apply(self.db.facts())

    def remove(self) -> None:
        self.setup.remove(self.live, self.live)

    def job(self, ref: str, qos: str, state: JobState = JobState.PENDING, **other: Any) -> None:
        self.live.jobs[ref] = replace(
            made.job(int(ref), state), ref=ref, qos=qos, user="alice", account="nlp", time_limit=7200, **other
        )


@pytest.fixture
def place() -> Place:
    return Place()


def test_apply_twice_changes_once_and_remove_gives_all_back(place: Place) -> None:
    before = copy.deepcopy(place.db.picture())
    assert place.apply() == 7
    assert place.plugin.text == "ours"
    count = len(place.db.commands)
    assert place.apply() == 0
    assert len(place.db.commands) == count
    place.remove()
    assert place.db.picture() == before
    assert place.plugin.text == "site"
    assert place.memory.values == {}


def test_each_step_is_written_down_before_it_is_made(place: Place) -> None:
    real, written = place.db.do, []

    def look(step: Step) -> None:
        written.append([step_says for step_says in _says(place) if step_says == step.says])
        real(step)

    place.db.do = look  # type: ignore[method-assign]
    place.apply()
    assert len(written) == 6
    assert all(written)


def _says(place: Place) -> list[str]:
    from pyslurm_budget.service.setup import step_of

    return [step_of(change, "demo").says for change in record_of(place.memory.get(RECORD)).changes]


@pytest.mark.parametrize("after", range(6))
def test_a_failure_in_the_middle_is_gone_on_with(place: Place, after: int) -> None:
    before = copy.deepcopy(place.db.picture())
    place.db.fail_at = after
    with pytest.raises(SlurmdbdError):
        place.apply()
    assert len(_says(place)) == after + 1, "what was not begun is not remembered"
    place.db.fail_at = None
    assert place.apply() == 7 - after
    assert place.apply() == 0
    place.remove()
    assert place.db.picture() == before


@pytest.mark.parametrize("after", range(6))
def test_a_failure_in_the_middle_is_undone(place: Place, after: int) -> None:
    before = copy.deepcopy(place.db.picture())
    place.db.fail_at = after
    with pytest.raises(SlurmdbdError):
        place.apply()
    place.db.fail_at = None
    place.remove()
    assert place.db.picture() == before
    assert place.memory.values == {}


@pytest.mark.parametrize("after", range(5))
def test_a_removal_that_broke_off_is_gone_on_with(place: Place, after: int) -> None:
    before = copy.deepcopy(place.db.picture())
    place.apply()
    place.db.fail_at = len(place.db.commands) + after
    with pytest.raises(SlurmdbdError):
        place.remove()
    place.db.fail_at = None
    place.remove()
    assert place.db.picture() == before
    assert place.memory.values == {}


def test_what_sacctmgr_left_out_without_a_word_is_noticed(place: Place) -> None:
    place.db._command = lambda words: None  # type: ignore[method-assign]
    with pytest.raises(SlurmSetupError, match="no failure, and yet this is still to be done: make the QOS spare"):
        place.apply()


def test_the_plugin_is_not_put_in_while_slurmctld_refuses_what_it_would_give(place: Place) -> None:
    """Not by the next apply either, which has nothing to change, until slurmctld knows the lists."""
    place.db.deaf = True
    for _ in range(2):
        with pytest.raises(SlurmSetupError, match=r"refuses QOS backed to alice in account nlp .and 3 more.*restart"):
            place.apply()
        assert place.plugin.text == "site"
    assert sum(place.paused) == 2 * 9
    place.db.restart_slurmctld()
    assert place.apply() == 1
    assert place.plugin.text == "ours"


def test_slurmctld_is_waited_for(place: Place) -> None:
    place.db.deaf = True
    setup = replace(place.setup, pause=lambda _: place.db.restart_slurmctld())
    assert setup.apply(place.db.facts()) == 7


def test_a_plugin_that_cannot_be_written_leaves_a_record(place: Place) -> None:
    before = copy.deepcopy(place.db.picture())
    place.plugin.fails = True
    with pytest.raises(SlurmSetupError):
        place.apply()
    assert record_of(place.memory.get(RECORD)).plugin is not None
    place.remove()
    assert (place.db.picture(), place.plugin.text) == (before, "site")


def test_pending_jobs_go_home_with_their_time_limit_and_all_lose_our_order(place: Place) -> None:
    place.apply()
    place.job("1", "spare")
    place.job("2", "backed")
    place.job("3", "normal")
    place.remove()
    assert {job.qos for job in place.live.jobs.values()} == {"normal"}
    assert place.live.updates == [
        ("1", {"qos": "normal", "site_factor": 0, "time_limit": 7200, "unlimited": False}),
        ("2", {"qos": "normal", "site_factor": 0, "time_limit": 7200, "unlimited": False}),
    ]
    assert "1 pending jobs from QOS spare to normal" in place.said


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.SUSPENDED])
def test_a_running_job_keeps_its_qos_until_it_ends(place: Place, state: JobState) -> None:
    before = copy.deepcopy(place.db.picture())
    place.apply()
    place.job("7", "spare", state)
    with pytest.raises(UnfinishedError, match=r"QOS spare stays: 1 jobs use it \(7\).*remove again"):
        place.remove()
    assert UnfinishedError.exit_status == 27
    assert set(place.db.qos) == {"normal", "spare"}
    assert place.live.updates == [("7", {"site_factor": 0})]
    assert place.setup.record().made == {"spare"}
    place.live.jobs.clear()
    place.remove()
    assert place.db.picture() == before
    assert place.memory.values == {}


def test_a_job_between_two_runs_is_waited_for(place: Place) -> None:
    """A QOS update of a job that is still completing may be lost, or rewrite its finished run."""
    place.apply()
    place.job("7", "spare", completing=True)
    with pytest.raises(UnfinishedError, match=r"1 jobs use it \(7\)"):
        place.remove()
    assert place.live.updates == []


def test_a_job_that_slurm_refuses_to_move_keeps_its_qos_there(place: Place) -> None:
    place.apply()
    place.job("7", "backed")
    place.live.refused = {"7"}
    with pytest.raises(UnfinishedError, match="QOS backed stays"):
        place.remove()
    assert "backed" in place.db.qos


def test_a_job_that_ended_meanwhile_is_no_trouble(place: Place) -> None:
    place.apply()
    place.job("7", "backed", JobState.OTHER)
    place.remove()
    assert set(place.db.qos) == {"normal"}


def test_our_reservations_go_after_their_jobs_left_them(place: Place) -> None:
    place.live.reservations = [
        Reservation("sbudget_5", ("n1",), 1, 2, ours=True), Reservation("maint", ("n2",), 1, 2)
    ]  # fmt: skip
    place.job("5", "normal", JobState.RUNNING, reservation="sbudget_5")
    place.remove()
    assert [r.name for r in place.live.reservations] == ["maint"]
    assert place.live.updates == [("5", {"reservation": ""})]


def test_removing_where_nothing_was_applied_changes_nothing(place: Place) -> None:
    before = copy.deepcopy(place.db.picture())
    place.job("3", "backed")
    place.remove()
    assert place.db.commands == []
    assert (place.db.picture(), place.plugin.text, place.live.updates) == (before, "site", [])
