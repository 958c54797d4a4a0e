"""The whole product where Slurm can be claimed from (23.02 on): whose place is taken, and what deaths leave."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyslurm_budget.domain.claim import EXEMPT
from pyslurm_budget.domain.plan import ActionKind
from pyslurm_budget.service.ports import NEVER_OPENED
from tests.cluster.devcluster import PORT, SCRIPT, claim_settings, closing_cluster, folder, slurm_release
from tests.cluster.site import Site, ledger_of

pytestmark = pytest.mark.cluster
DRIVER = Path(__file__).with_name("claim_driver.py")
LEASE = 1
NO_SUCH_STEP = 3
STATES = (
    "write-claim",
    "look claim",
    "send 1",
    "sent 1",
    "look look",
    "look open",
    "look read",
    "closed",
    "close-round",
)
BACKED = ("backed", "claim")


@pytest.fixture(scope="module")
def installed(network: None) -> Iterator[Site]:
    """A cluster with the settings of claims, set up."""
    if slurm_release() < (23, 2):
        pytest.skip("Slurm is older than 23.02")
    with (
        folder("claims") as place,
        closing_cluster(place, PORT + 300, requeue_delay=5, conf=claim_settings()) as cluster,
    ):
        site = Site(cluster, place.parent / "installed")
        site.folder.mkdir()
        site.configure()
        site.sbudget("setup", "apply")
        yield site


@pytest.fixture
def site(installed: Site, tmp_path: Path) -> Site:
    """Empty, in enforce, with a ledger and a history of its own."""
    made = Site(installed.cluster, tmp_path, table=installed.table)
    made.clean()
    made.forget_history()
    made.configure(lease=f"{LEASE}s", sections='[displace]\nclaim_step = "3s"\nearly_wait = "0s"\nback_off = "3s"\n')
    made.begin()
    return made


def full_house(site: Site, contract: str = "2s") -> tuple[list[str], str]:
    """Four nodes of nlp's work past its contract, and vision's job that waits for one of them. The runs are stubborn:
    they end KillWait after they were told to, so that every state of a round is met."""
    stubborn = "trap '' TERM; while :; do sleep 1; done"
    runs = [site.submit("nlp", 4, contract=contract, run=stubborn) for _ in range(4)]
    for job in runs:
        site.wait(job, "RUNNING")
    site.sbudget("reconcile", "--apply")
    waits = site.submit("vision", 4, contract="10s")
    time.sleep(3)
    return runs, waits


def exposed(site: Site) -> list[str]:
    """Backed runs that a claim could stop."""
    rows = (line.split() for line in site.jobs().splitlines())
    return [job for job, state, qos, priority in rows
            if state == "RUNNING" and qos in BACKED and int(priority) <= EXEMPT]  # fmt: skip


def claiming(site: Site) -> list[str]:
    rows = (line.split() for line in site.jobs().splitlines())
    return [job for job, state, qos, _ in rows if state == "PENDING" and qos == "claim"]


def stopped(site: Site) -> list[str]:
    return sorted({row["JobID"] for row in site.sacct() if row["State"].startswith(("PREEMPTED", "REQUEUED"))})


def allowed(site: Site) -> set[str]:
    """Runs that were written down before they were opened."""
    with ledger_of(site) as ledger:
        return {i.action.ref for i in ledger.intents(kinds=[ActionKind.DISPLACE]) if i.outcome != NEVER_OPENED}


def served(site: Site, waits: str) -> None:
    """Normal cycles until the job runs."""
    said = ""
    for _ in range(30):
        if site.state_of(waits) == "RUNNING":
            return
        said = site.sbudget("reconcile", "--apply").out
        time.sleep(1)
    raise AssertionError(said + site.jobs() + site.sbudget("why", waits).out)


def test_setup_finds_all_that_claims_need(site: Site) -> None:
    found = site.sbudget("setup", "check")
    assert "runs can be shielded, and opened for one job" in found.out
    assert "must change" not in found.out


def test_one_run_gives_way_and_everybody_is_told(site: Site) -> None:
    runs, waits = full_house(site)
    served(site, waits)
    assert site.qos(waits) == "claim"
    site.settled()
    (victim,) = stopped(site)
    assert victim in runs
    assert next(row["State"] for row in site.sacct() if row["JobID"] == victim) == "PREEMPTED"
    assert exposed(site) == []
    assert claiming(site) == []
    story = site.sbudget("why", victim).out
    assert f"gives way to {waits} (vision" in story
    assert "contract of 2 s kept" in story
    story = site.sbudget("why", waits).out
    assert "submitted to backed" in story
    assert "may take the place of" in story


def died(site: Site, step: str, *restart: str) -> None:
    """Cycles until something dies at a step: the first one may come before Slurm has looked at the job."""
    argv = [sys.executable, str(DRIVER), str(site.config), step, *restart]
    for _ in range(10):
        ran = site.cluster.run(argv, check=False, env={"PYTHONPATH": str(DRIVER.parents[2])}, timeout=120)
        time.sleep(LEASE + 0.1)
        if ran.status != NO_SUCH_STEP:
            break
    assert ran.status == (0 if restart else -9), (step, ran)


@pytest.mark.parametrize("step", STATES)
def test_the_controller_dies_in_a_round(site: Site, step: str) -> None:
    runs, waits = full_house(site)
    died(site, step)
    time.sleep(2)  # what is open may be taken, by the job that claims alone
    site.sbudget("reconcile", "--apply")
    assert exposed(site) == []
    site.wait(waits, "RUNNING", seconds=60) if site.state_of(waits) != "PENDING" else served(site, waits)
    site.settled()
    assert len(stopped(site)) == 1, stopped(site)
    assert set(stopped(site)) <= allowed(site) & set(runs)
    assert exposed(site) == claiming(site) == []


@pytest.mark.parametrize("step", ["look claim", "sent 1", "look open", "look read", "closed"])
def test_slurmctld_is_killed_in_a_round(site: Site, step: str) -> None:
    runs, waits = full_house(site)
    died(site, step, str(SCRIPT), str(site.cluster.folder))
    served(site, waits)
    site.settled()
    assert set(stopped(site)) <= allowed(site) & set(runs)
    assert exposed(site) == claiming(site) == []


def test_what_does_not_fit_stops_nobody(site: Site) -> None:
    """A feature that no node has cannot be judged by us: Slurm does not let such a job wait; two nodes can."""
    runs, _ = full_house(site, contract="30s")
    site.sbudget("reconcile", "--apply")
    assert stopped(site) == []
    assert exposed(site) == []
    assert {site.state_of(job) for job in runs} == {"RUNNING"}


def test_no_user_can_claim(site: Site) -> None:
    waits = site.submit("vision", 4, "--hold")
    asked = site.cluster.run(["sbatch", "-A", "vision", "--qos=claim", "-n1", "--wrap", "true"], "bob", check=False)
    assert asked.status != 0
    moved = site.cluster.run(["scontrol", "update", f"jobid={waits}", "qos=claim"], "bob", check=False)
    assert moved.status != 0
    assert site.qos(waits) == "backed"


def test_one_command_stops_all_claims(site: Site) -> None:
    runs, waits = full_house(site)
    change = ["sacctmgr", "-i", "modify", "qos", "claim", "set"]
    site.cluster.run([*change, "preempt=spare"])
    try:
        for _ in range(4):
            site.sbudget("reconcile", "--apply")
        assert stopped(site) == []
        assert site.state_of(waits) == "PENDING"
        with ledger_of(site) as ledger:
            assert {i.outcome for i in ledger.intents(kinds=[ActionKind.CLAIM])} == {
                "Slurm found no place for it with these runs open"
            }
    finally:
        site.cluster.run([*change, "preempt=spare,backed"])
    served(site, waits)
    assert len(stopped(site)) == 1
    assert set(stopped(site)) <= set(runs)
