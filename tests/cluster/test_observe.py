"""*Observe tells the truth*: what a site sees before it installs anything is what it gets afterwards."""

from __future__ import annotations

import time

import pytest

from tests.cluster.site import Site

pytestmark = pytest.mark.cluster
CLASSES = '[classes]\nnormal = "normal-spare"'
LOAD = (
    # over its budget after the second: 20 % of 16 GPUs x 240 s = 768 GPU-s
    *(("bio", 4, "60s"),) * 5,
    *(("vision", 4, "30s"),) * 3,
    ("nlp", 2, "0"),
    *(("nlp", 4, "20s"),) * 4,
    ("vision", 1, "60s"),
)


def submit(site: Site) -> list[str]:
    """The same submissions in the same order, each a moment after the last."""
    return [site.submit(group, gpus, contract=contract) for group, gpus, contract in LOAD]


def shadow_classes(site: Site, jobs: list[str]) -> list[str]:
    """The classes that observe mode predicts: of runs from the ledger, of waiting jobs from the last cycle."""
    from pyslurm_budget.ledger.store import SqlLedger

    ledger = SqlLedger(f"sqlite:///{site.state}/ledger.sqlite", "demo")
    try:
        waiting = {a.ref: str(a.work_class) for a in ledger.admissions()}
        runs = {job: ledger.runs_of_job(job) for job in jobs}
        return [str(runs[job][-1].shadow) if runs[job] else waiting[job] for job in jobs]
    finally:
        ledger.close()


def test_observe_predicts_the_classes_that_enforce_gives(bare_site: Site) -> None:
    site = bare_site
    site.configure(mode="observe", sections=CLASSES)
    site.sbudget("budget", "apply", str(site.folder / "budgets.toml"))
    site.sbudget("reconcile")
    settings = site.cluster.run(["sacctmgr", "-nP", "show", "qos"]).out
    with site.controller("--json"):
        jobs = submit(site)
        time.sleep(10)
        assert {site.qos(job) for job in jobs} == {"normal"}, "observe mode changed something"
    predicted = shadow_classes(site, jobs)
    assert set(predicted) == {"backed", "spare"}, predicted
    assert site.cluster.run(["sacctmgr", "-nP", "show", "qos"]).out == settings
    site.clean()
    for path in site.state.glob("ledger*"):
        path.unlink()

    site.forget_history()
    site.configure(mode="enforce", sections=CLASSES)
    try:
        site.install()
        with site.controller():
            jobs = submit(site)
            time.sleep(10)
            given = ["spare" if site.qos(job) == "normal-spare" else "backed" for job in jobs]
    finally:
        site.clean()
        site.sbudget("setup", "remove")
    assert given == predicted
