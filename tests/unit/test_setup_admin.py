"""sacctmgr's answers, recorded and as 22.05.8 gave them: read in full or refused; each failure is one sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyslurm_budget.errors import (
    SbudgetError,
    SlurmctldError,
    SlurmdbdError,
    SlurmMissingError,
    SlurmOutputError,
    SlurmPermissionError,
    SlurmSetupError,
)
from pyslurm_budget.service.setup import LIMITS, PartitionRule, Step
from pyslurm_budget.slurm.admin import SlurmAdmin, partition_rules, user_of
from pyslurm_budget.slurm.queue import SlurmQueue
from pyslurm_budget.slurm.run import Runner
from tests.shared_data import shared
from tests.unit.slurm_fakes import Fakes, make
from tests.unit.test_slurm_queue import CONFIG, PARTITION

RELEASES = ("22.05.8", "24.11.5", "25.11.7", "26.05.5")
DENIED = " Problem adding QOS: Access/permission denied\n"
NO_RIGHT = "sacctmgr: error: Your user doesn't have privilege to perform this action\n"
NO_VALUE = "sacctmgr: error: Invalid value for GraceTime (00:00:30)\n"
NO_DEFAULT = " These associations don't have access to their default qos.\n"
STEP = Step("make it", (("add", "qos", "spare", "priority=1"),))


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fakes:
    return make(tmp_path, monkeypatch)


def admin() -> SlurmAdmin:
    return SlurmAdmin(Runner(), SlurmQueue(Runner()))


def qos_line(name: str, priority: str = "0", preempt: str = "", grace: str = "00:00:00", **limits: str) -> str:
    values = [limits.get(limit, "1.000000" if limit == "usagefactor" else "") for limit in LIMITS]
    return "|".join([name, priority, preempt, "cluster", grace, *values]) + "\n"


def answers(fakes: Fakes, qos: str, assoc: str = "lv|root||||normal|\nlv|pa|||root|+backed,+spare|spare\n") -> None:
    fakes.answer("show config", CONFIG + "SlurmUser               = slurm(64030)\n")
    fakes.answer("show partition", PARTITION)
    fakes.answer("show qos", qos)
    fakes.answer("show assoc", assoc)
    fakes.answer("show user", "me|Operator\n")


def test_qos_and_associations_are_read_as_they_are_stored(fakes: Fakes) -> None:
    answers(fakes, qos_line("normal") + qos_line("high", "50", "normal,low", "1-00:00:30", maxwall="1-00:00:00"))
    facts = admin().facts()
    assert facts.cluster == "lv"
    high = facts.qos["high"]
    assert (high.priority, high.preempt, high.grace) == (50, {"normal", "low"}, 86430)
    assert high.limits == {"maxwall": "1-00:00:00"}
    assert facts.qos["normal"].limits == {}, "UsageFactor 1 is no limit"
    assert [(a.key, a.parent, set(a.own), a.default) for a in facts.associations] == [
        (("root", "", ""), "", {"normal"}, ""),
        (("pa", "", ""), "root", {"+backed", "+spare"}, "spare"),
    ]
    asked = [words for name, words, *_ in fakes.calls() if name == "sacctmgr" and "assoc" in words]
    assert {"withrawqoslevel", "woplimits"} <= set(asked[0])


def test_qos_of_other_clusters_are_told_apart(fakes: Fakes) -> None:
    answers(fakes, qos_line("normal"), "lv|root||||normal|\nfar|root||||normal,spare|\nfar|x|||root|+y,-z|w\n")
    facts = admin().facts()
    assert facts.elsewhere == {"normal", "spare", "y", "z", "w"}
    assert [a.account for a in facts.associations] == ["root"]


@pytest.mark.parametrize("grace", ["-1", "UNLIMITED", "-00:00:01"])
def test_a_grace_without_end_is_told_apart(fakes: Fakes, grace: str) -> None:
    answers(fakes, qos_line("spare", grace=grace))
    assert admin().facts().qos["spare"].grace < 0


@pytest.mark.parametrize(
    ("qos", "assoc"),
    [
        ("normal|0\n", "lv|root||||normal|\n"),
        (qos_line("normal", "many"), "lv|root||||normal|\n"),
        (qos_line("normal", grace="1:2"), "lv|root||||normal|\n"),
        (qos_line("normal"), "lv|root|||normal\n"),
        (qos_line("normal"), ""),
        (qos_line("normal"), "other|root||||normal|\n"),
    ],
)
def test_an_answer_that_cannot_be_read_is_a_failure(fakes: Fakes, qos: str, assoc: str) -> None:
    answers(fakes, qos, assoc)
    with pytest.raises(SlurmOutputError):
        admin().facts()


def test_rights(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(fakes, qos_line("normal"))
    monkeypatch.setattr(os, "geteuid", lambda: 64030)
    assert admin().facts().admin_level == "administrator", "SlurmUser"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert admin().facts().admin_level == "administrator"
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    assert admin().facts().admin_level == "operator"


@pytest.mark.parametrize(
    ("out", "err", "status", "failure", "words"),
    [
        (" Adding QOS(s)\n  spare\n", "", 0, None, ""),
        (" Nothing new added.\n", "", 1, None, ""),
        ("  Nothing modified\n", "", 1, None, ""),
        (" Nothing deleted\n", "", 1, None, ""),
        (" Adding QOS(s)\n  x\n", DENIED, 1, SlurmPermissionError, "Administrator"),
        ("", NO_RIGHT, 1, SlurmPermissionError, "as root"),
        ("", "sacctmgr: error: QOS Preemption loop detected\n", 1, SlurmSetupError, "QOS Preemption loop detected"),
        ("", "sacctmgr: error: You gave a bad qos 'x'. Valid QOS's are normal\n", 1, SlurmSetupError, "bad qos"),
        (" Adding QOS(s)\n", NO_VALUE, 0, SlurmSetupError, "GraceTime"),
        (" Modified\n", NO_DEFAULT, 0, SlurmSetupError, "DefaultQOS"),
        ("", "sacctmgr: error: slurm_persist_conn_open_without_init: failed to open persistent connection to "
             "host:localhost:6819: Connection refused\n", 1, SlurmdbdError, "slurmdbd does not answer"),
    ],
)  # fmt: skip
def test_what_sacctmgr_says_to_a_change(
    fakes: Fakes, out: str, err: str, status: int, failure: type[SbudgetError] | None, words: str
) -> None:
    fakes.answer("add qos", out, err, status)
    if failure is None:
        admin().do(STEP)
    else:
        with pytest.raises(failure, match=words) as raised:
            admin().do(STEP)
        assert "\n" not in str(raised.value)
    ((name, given, _, _),) = fakes.calls()
    assert (name, given) == ("sacctmgr", ["-i", "add", "qos", "spare", "priority=1"])


@pytest.mark.parametrize(
    ("err", "status", "answer"),
    [
        ("sbatch: Job 14 to start at 2026-12-03T07:35:41 using 1 processors on nodes n1 in partition gpu\n", 0, True),
        ("allocation failure: Invalid qos specification\n", 1, False),
        ("allocation failure: Requested node configuration is not available\n", 1, None),
        ("sbatch: error: Unable to contact slurm controller (connect failure)\n", 1, SlurmctldError),
    ],
)
def test_what_slurmctld_accepts_is_asked_by_a_job_that_is_not_made(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch, err: str, status: int, answer: bool | type[SbudgetError] | None
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    fakes.answer("sbatch", "", err, status)
    if isinstance(answer, type):
        with pytest.raises(answer):
            admin().accepts("nlp", "root", "spare", "gpu")
    else:
        assert admin().accepts("nlp", "root", "spare", "gpu") is answer
    ((name, given, _, _),) = fakes.calls()
    assert name == "sbatch"
    assert {"--test-only", "--uid=root", "--account=nlp", "--qos=spare", "--partition=gpu"} <= set(given)


@pytest.mark.parametrize(("uid", "user"), [(1000, "root"), (0, "nobody-by-this-name")])
def test_slurmctld_is_not_asked_by_others_than_root_nor_for_users_whom_this_host_does_not_know(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch, uid: int, user: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert admin().accepts("nlp", user, "spare", "gpu") is None
    assert not (fakes.folder / "calls.jsonl").exists()


def test_without_slurms_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmMissingError, match="Cannot run scontrol"):
        admin().facts()


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_partitions_take_every_qos(release: str) -> None:
    rules = partition_rules(shared(f"data/recorded/{release}/scontrol_show_partition_o.txt").read_text())
    assert rules
    assert set(rules.values()) == {PartitionRule()}


def test_rules_of_partitions() -> None:
    text = (
        "PartitionName=a AllowGroups=ALL AllowQos=normal,high AllocNodes=ALL\n"
        "PartitionName=b AllowGroups=ALL DenyQos=spare AllocNodes=ALL\n"
    )
    assert partition_rules(text) == {
        "a": PartitionRule(frozenset({"normal", "high"})),
        "b": PartitionRule(None, frozenset({"spare"})),
    }
    assert not partition_rules(text)["a"].takes("spare")
    assert not partition_rules(text)["b"].takes("spare")
    assert partition_rules(text)["b"].takes("normal")
    with pytest.raises(SlurmOutputError):
        partition_rules("AllowQos=x")


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_slurm_user(release: str) -> None:
    text = shared(f"data/recorded/{release}/scontrol_show_config.txt").read_text()
    line = next(line for line in text.splitlines() if line.startswith("SlurmUser "))
    assert user_of(line.partition("=")[2]) == ("root", 0)
    with pytest.raises(SlurmOutputError):
        user_of("(null)")
