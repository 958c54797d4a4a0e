"""What bad input and broken daemons get: one clear sentence, an exit status of its own, nothing changed or lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.conftest import Installation, fresh
from tests.cluster.site import Site

pytestmark = pytest.mark.cluster


def one_sentence(text: str, *words: str) -> None:
    """One line on stderr that names what and where."""
    lines = [line for line in text.splitlines() if line]
    assert len(lines) == 1, text
    assert lines[0].startswith("sbudget: ")
    for word in words:
        assert word.lower() in lines[0].lower(), lines[0]


@pytest.fixture(scope="module")
def calm(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A site for tests that change nothing."""
    return fresh(installation, tmp_path_factory.mktemp("calm"))


@pytest.fixture
def stopped(site: Site, request: pytest.FixtureRequest) -> Iterator[Site]:
    """The site with one daemon stopped for the time of the test; a job waits in a class that is not its own."""
    site.cluster.wait("its nodes", lambda: "idle" in site.cluster.run(["sinfo", "-h"]).out)
    job = site.submit("bio", 1, "--begin=now+1hour", contract="0")
    site.cluster.run(["scontrol", "update", f"jobid={job}", "qos=backed"])
    site.cluster.daemon("stop", request.param)
    try:
        yield site
    finally:
        site.cluster.daemon("start", request.param)
        up = ["sacctmgr", "-nP", "show", "cluster"] if request.param == "slurmdbd" else ["scontrol", "ping"]
        site.cluster.wait("its return", lambda: site.cluster.run(up, check=False).status == 0, 60)
        site.cluster.wait("its nodes", lambda: "idle" in site.cluster.run(["sinfo", "-h"], check=False).out, 60)


@pytest.mark.parametrize(("stopped", "status"), [("slurmdbd", 24), ("slurmctld", 21)], indirect=["stopped"])
def test_a_daemon_that_does_not_answer(stopped: Site, status: int) -> None:
    published = {path: path.read_text() for path in (stopped.table, stopped.state / "state.json")}
    jobs = stopped.jobs() if status == 24 else ""
    ran = stopped.sbudget("reconcile", "--apply", check=False)
    assert ran.status == status, ran
    one_sentence(ran.err, "slurmdbd" if status == 24 else "slurmctld")
    for path, text in published.items():
        assert path.read_text() == text, f"{path.name}: the last one stays in force"
    if status == 24:
        assert stopped.jobs() == jobs
        ran = stopped.sbudget("setup", "check", check=False)
        assert ran.status == status, ran
        one_sentence(ran.err, "slurmdbd")


def test_no_slurm_commands(calm: Site) -> None:
    ran = calm.sbudget("reconcile", check=False, env={"PATH": "/nonexistent"})
    assert ran.status == 20, ran
    one_sentence(ran.err, "scontrol")


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ('[budgets.physics]\nshare = "10%"', 11, ("physics",)),
        ('[budgets.nlp]\nshare = "60%"\n[budgets.bio]\nshare = "50%"', 11, ("110",)),
        (
            '[budgets.nlp]\nparent = "bio"\nshare = "1%"\n[budgets.bio]\nparent = "nlp"\nshare = "1%"',
            11,
            ("nlp", "bio"),
        ),
        ("[budgets.nlp", 11, ("toml",)),
    ],
)
def test_a_bad_budget_file(calm: Site, text: str, status: int, words: tuple[str, ...]) -> None:
    before = calm.sbudget("budget", "tree").out
    file = calm.folder / "bad.toml"
    file.write_text(text)
    ran = calm.sbudget("budget", "apply", str(file), check=False)
    assert ran.status == status, ran
    one_sentence(ran.err, str(file), *words)
    assert calm.sbudget("budget", "tree").out == before


@pytest.mark.parametrize(
    ("key", "line", "bad"),
    [
        ("contract.cap", 'cap = "60s"', 'cap = "soon"'),
        ("window.length", 'length = "240s"', 'length = "-7d"'),
        ("cycle.interval", 'interval = "2s"', "interval = true"),
    ],
)
def test_an_unreadable_duration(calm: Site, key: str, line: str, bad: str) -> None:
    text = calm.config.read_text()
    assert line in text
    calm.config.write_text(text.replace(line, bad))
    try:
        ran = calm.sbudget("reconcile", check=False)
    finally:
        calm.config.write_text(text)
    assert ran.status == 10, ran
    one_sentence(ran.err, str(calm.config), key, bad.partition(" = ")[2].strip('"'))


def test_users_cannot_cheat_by_hand(site: Site) -> None:
    """The modify hook: no move to a backed QOS, no requeue flag off; the owner may go spare."""
    for _ in range(4):
        site.submit("nlp", 4, contract="0")
    job = site.submit("bio", 4, "--begin=now+1hour", contract="0")
    assert site.qos(job) == "spare"
    for change in ("qos=backed", "requeue=0"):
        ran = site.cluster.run(["scontrol", "update", f"jobid={job}", change], user="carol", check=False)
        assert ran.status != 0, change
    assert site.qos(job) == "spare"
    assert site.fields(job)["Requeue"] == "1"
    refused = site.cluster.run(
        ["sbatch", "-A", "bio", "--gres=gpu:1", "-t", "30", "--comment=min-runtime=4h", "--wrap=true"],
        user="carol",
        check=False,
    )
    assert refused.status != 0
    assert "longest contract here is 1 min" in refused.err
