"""`sbudget setup` on a real Slurm: what it makes works, and after `remove` slurmdbd and the files are as before."""

from __future__ import annotations

import os
import pwd
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pyslurm_budget.service.setup import LIMITS, Step
from tests.cluster.devcluster import BIN, PORT, DevCluster, Ran, closing_cluster, folder
from tests.unit.setup_model import Slurmdbd, StoredQos

pytestmark = pytest.mark.cluster

CONFIG = """\
cluster = "setup"
state_dir = "{state}"
[slurm]
conf = "{conf}"
[ledger]
url = "sqlite:///{state}/ledger.sqlite"
lease = "2s"
"""
OWN = """\
function slurm_job_submit(job_desc, part_list, submit_uid)
   job_desc.comment = "the site's own rule"
   return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   return slurm.SUCCESS
end
"""
GONE = (
    "sacctmgr: error: slurm_persist_conn_open: failed to open persistent connection to host:localhost:6819: "
    "Connection refused"
)
KEPT = '[classes]\nnormal = "normal-spare"\nhigh = "high-spare"\n'


@dataclass
class Site:
    """The cluster with a configuration in a folder of its own."""

    cluster: DevCluster
    folder: Path
    untouched: str = ""

    @property
    def config(self) -> Path:
        return self.folder / "sbudget.toml"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def plugin(self) -> Path:
        return self.cluster.conf.parent / "job_submit.lua"

    def configure(self, more: str = "") -> None:
        self.config.write_text(CONFIG.format(state=self.state, conf=self.cluster.conf) + more)

    def setup(self, *words: str, user: str | None = None, path: str | None = None) -> Ran:
        argv = [str(BIN / "sbudget"), "--config", str(self.config), "setup", *words]
        return self.cluster.run(_as(user) + argv, check=False, env={"PATH": path} if path else None)

    def sacctmgr(self, words: str) -> None:
        said = self.cluster.run(["sacctmgr", "-i", *words.split()])
        assert "default qos" not in said.out + said.err, said

    def picture(self) -> str:
        """Everything that setup may change: each QOS in full, each list as it is stored, the files."""
        qos = self.cluster.run(["sacctmgr", "-P", "show", "qos", f"format=name,id,description,{QOS_FIELDS}"]).out
        fields = "format=cluster,account,user,partition,parentname,qos,defaultqos,fairshare"
        lists = self.cluster.run(["sacctmgr", "-P", "show", "assoc", "withrawqoslevel", "woplimits", fields]).out
        in_force = self.cluster.run(["sacctmgr", "-P", "show", "assoc"]).out
        files = {p.name: (p.read_bytes(), p.stat().st_mode) for p in self.cluster.conf.parent.iterdir()}
        return "\n".join([*sorted(qos.splitlines()), lists, in_force, repr(sorted(files.items()))])


def _as(user: str | None) -> list[str]:
    """Another user, who may read what only root can: the interpreter may lie in root's home."""
    if user is None:
        return []
    group = str(pwd.getpwnam(user).pw_gid)
    right = "+dac_read_search"
    return ["setpriv", f"--reuid={user}", f"--regid={group}", "--init-groups", f"--inh-caps={right}",
            f"--ambient-caps={right}"]  # fmt: skip


QOS_FIELDS = ",".join(["priority", "preempt", "preemptmode", "gracetime", "preemptexempttime", *LIMITS])


@pytest.fixture(scope="module")
def cluster(network: None) -> Iterator[DevCluster]:
    options = {"name": "setup", "nodes": 2, "accounts": "lab,lab/nlp,bio", "users": "alice:nlp,bob:bio"}
    with folder("setup") as place, closing_cluster(place, PORT + 300, **options) as running:
        yield running


@pytest.fixture(scope="module")
def untouched(cluster: DevCluster) -> str:
    """What a cluster has that setup has never seen."""
    return Site(cluster, cluster.folder).picture()


@pytest.fixture
def site(cluster: DevCluster, untouched: str) -> Iterator[Site]:
    """A fresh configuration; whatever the test leaves must be nothing."""
    made = Site(cluster, cluster.folder / "site", untouched)
    made.folder.mkdir(mode=0o755)
    made.configure()
    yield made
    for user in ("alice", "bob"):
        cluster.run(["scancel", "-u", user])
    cluster.wait("an empty queue", lambda: not cluster.run(["squeue", "-h"]).out.strip())
    after = made.picture()
    if after != untouched:
        made.setup("remove")
        after = made.picture()
    shutil.rmtree(made.folder)
    assert after == untouched


def test_plan_changes_nothing_apply_does_what_it_said_and_remove_takes_it_back(site: Site) -> None:
    before = site.untouched
    checked = site.setup("check")
    assert checked.status == 23
    assert "3 of " in checked.err
    assert "QOS and lists, plugin file, table" in checked.err
    planned = site.setup("plan")
    assert planned.status == 0
    assert (site.picture(), list(site.folder.iterdir())) == (before, [site.config])
    done = site.setup("apply")
    assert (done.status, done.err) == (0, "sbudget: 9 changes made\n")
    said = [line.partition("    # ")[2] for line in planned.out.splitlines() if line.startswith("sacctmgr")]
    assert done.out.splitlines()[:-1] == said
    assert site.setup("check").status == 0
    assert (site.setup("apply").err, site.setup("plan").err) == ("sbudget: nothing to do\n",) * 2
    assert site.setup("plan").out == ""
    removed = site.setup("remove")
    assert (removed.status, removed.err) == (0, "sbudget: nothing of ours is left in Slurm\n")
    assert site.picture() == before
    again = site.setup("remove")
    assert (again.status, again.out) == (0, "")


def test_the_commands_of_the_plan_do_what_apply_does(site: Site) -> None:
    before = site.untouched
    planned = site.setup("plan").out
    assert site.setup("apply").status == 0
    applied = site.picture()
    assert site.setup("remove").status == 0
    for line in planned.splitlines():
        if line.startswith("sacctmgr"):
            site.cluster.run(["sh", "-c", line])
    by_hand = site.picture()
    lists = [slice(None, text.index("[(")) for text in (by_hand, applied)]
    assert _without_ids(by_hand[lists[0]]) == _without_ids(applied[lists[1]])
    for account in ("nlp", "lab", "bio"):
        site.sacctmgr(f"modify account {account} where cluster=setup set qos=")
    site.sacctmgr("delete qos name=backed,spare")
    assert site.picture() == before


def _without_ids(text: str) -> list[str]:
    """Lines without the number that slurmdbd gives to a QOS; associations have no number among their fields."""
    found = [line.split("|") for line in text.splitlines()]
    return ["|".join(cells[:1] + cells[2:]) if "made by sbudget" in line else line
            for cells, line in zip(found, text.splitlines(), strict=True)]  # fmt: skip


def test_users_get_both_classes_and_backed_work_preempts_spare_work(site: Site) -> None:
    assert site.setup("apply").status == 0
    cluster = site.cluster
    spare = [cluster.submit("bob", "-A", "bio", "--qos=spare", "-N1", "--exclusive") for _ in range(2)]
    cluster.wait("spare runs", lambda: {cluster.job(j, "JobState") for j in spare} == {"RUNNING"})
    backed = cluster.submit("alice", "-A", "nlp", "--qos=backed", "-N1", "--exclusive")
    cluster.wait("backed runs", lambda: cluster.job(backed, "JobState") == "RUNNING")
    assert sorted(cluster.job(j, "JobState") for j in spare) == ["PENDING", "RUNNING"]


def test_every_user_of_a_tree_gets_both_classes_and_keeps_what_was_his_own(site: Site) -> None:
    """In slurmctld, which slurmdbd tells of a list only one level down (23.11 to 25.05.0), and of a list that
    is set anew in such a way that lower lists are forgotten there."""
    site.sacctmgr("add qos mine")
    site.sacctmgr("add account deep parent=nlp cluster=setup")
    site.sacctmgr("add user bob account=deep cluster=setup")
    site.sacctmgr("modify user bob where account=deep cluster=setup set qos+=mine")
    try:
        before = site.picture()
        assert site.setup("apply").status == 0
        for user, account in (("alice", "nlp"), ("bob", "deep"), ("bob", "bio")):
            for qos in ("normal", "backed", "spare"):
                site.cluster.submit(user, "-A", account, f"--qos={qos}", "--hold")
        site.cluster.submit("bob", "-A", "deep", "--qos=mine", "--hold")
        for user in ("alice", "bob"):
            site.cluster.run(["scancel", "-u", user])
        assert site.setup("remove").status == 0
        assert site.picture() == before
        site.cluster.submit("bob", "-A", "deep", "--qos=mine", "--hold")
        site.cluster.submit("bob", "-A", "deep", "--hold")
        site.cluster.run(["scancel", "-u", "bob"])
    finally:
        site.sacctmgr("delete user where name=bob account=deep cluster=setup")
        site.sacctmgr("delete account where name=deep cluster=setup")
        site.sacctmgr("delete qos name=mine")


def test_check_and_apply_say_what_slurmctld_says(site: Site) -> None:
    """Lists made by hand for the top of a tree alone: not all releases of slurmdbd tell slurmctld of those below."""
    before = site.untouched
    for words in ("add qos spare priority=1 preemptmode=requeue", "add qos backed priority=100 preempt=spare",
                  "modify account lab where cluster=setup set qos+=backed,spare",
                  "modify account bio where cluster=setup set qos+=backed,spare"):  # fmt: skip
        site.sacctmgr(words)
    try:
        words = ["sbatch", "-A", "nlp", "--qos=backed", "--hold", "-o", "/dev/null", "--wrap=:"]
        refused = site.cluster.run(words, user="alice", check=False).status != 0
        checked, applied = site.setup("check"), site.setup("apply")
        assert ("slurmctld refuses QOS backed to alice in account nlp" in checked.out) is refused, checked
        assert ("restart slurmctld, then run sbudget setup apply again" in applied.err) is refused, applied
        _restart(site)
        assert "slurmctld accepts the QOS" in site.setup("check").out
        assert site.setup("apply").status == 0
        site.cluster.submit("alice", "-A", "nlp", "--qos=backed", "--hold")
        site.cluster.run(["scancel", "-u", "alice"])
        assert site.setup("remove").status == 0
    finally:
        for account in ("lab", "bio"):
            site.sacctmgr(f"modify account {account} where cluster=setup set qos=")
        site.sacctmgr("delete qos name=backed,spare")
    assert site.picture() == before


def test_a_site_with_qos_lists_and_limits_of_its_own_gets_them_back(site: Site) -> None:
    """Every form of list, every limit, associations by partition, a DefaultQOS, a Preempt list that is there."""
    limits = (
        "grptres=cpu=100,gres/gpu=10 grptresmins=cpu=1000 grptresrunmins=cpu=2000 grpjobs=50 grpjobsaccrue=30 "
        "grpsubmitjobs=60 grpwall=1000 maxtresperjob=cpu=10 maxtrespernode=cpu=8 maxtresminsperjob=cpu=99 "
        "maxwall=1-00:00:00 maxtresperuser=cpu=20 maxjobsperuser=4 maxsubmitjobsperuser=7 maxtresperaccount=cpu=30 "
        "maxjobsperaccount=8 maxsubmitjobsperaccount=9 maxjobsaccrueperuser=2 maxjobsaccrueperaccount=3 "
        "maxtresrunminspu=cpu=5 maxtresrunminspa=cpu=6 mintresperjob=cpu=1 minpriothres=5 "
        "usagefactor=2.5 usagethres=0.5 limitfactor=1.5 flags=denyonlimit,noreserve gracetime=45 priority=50"
    )
    site.sacctmgr("add qos low priority=1")
    site.sacctmgr(f"add qos high {limits} preempt=low")
    site.sacctmgr("modify account lab where cluster=setup set qos+=high")
    site.sacctmgr("modify account nlp where cluster=setup set qos=high,normal")
    site.sacctmgr("modify account nlp where cluster=setup set defaultqos=high")
    site.sacctmgr("modify account bio where cluster=setup set qos-=normal")
    site.sacctmgr("modify account bio where cluster=setup set qos+=high")
    site.sacctmgr("add user bob account=lab cluster=setup")
    site.sacctmgr("add user bob account=lab partition=gpu cluster=setup")
    site.sacctmgr("modify user bob where account=lab cluster=setup partition=gpu set qos=low,high")
    site.sacctmgr("modify user alice where account=nlp cluster=setup set qos=high")
    before = site.picture()
    site.configure(KEPT)
    try:
        done = site.setup("apply")
        assert done.status == 0, done
        fields = f"format=gracetime,{','.join(LIMITS)}"
        show = ["sacctmgr", "-nP", "show", "qos", fields, "where"]
        high, twin = (site.cluster.run([*show, f"name={name}"]).out for name in ("high", "high-spare"))
        assert "||" not in high, "every limit is set"
        assert high == twin
        may = ["sacctmgr", "-nP", "show", "assoc", "cluster=setup", "format=account,user,partition,qos"]
        assert {
            tuple(line.rsplit("|", 1)) for line in site.cluster.run(may).out.splitlines()
        } == {
            ("root||", "normal,normal-spare"), ("root|root|", "normal,normal-spare"),
            ("lab||", "high,high-spare,normal,normal-spare"), ("lab|bob|", "high,high-spare,normal,normal-spare"),
            ("lab|bob|gpu", "high,high-spare,low"), ("lab|sbudget|", "high,high-spare,normal,normal-spare"),
            ("nlp||", "high,high-spare,normal,normal-spare"), ("nlp|alice|", "high,high-spare"),
            ("bio||", "high,high-spare,normal-spare"), ("bio|bob|", "high,high-spare,normal-spare"),
        }  # fmt: skip
        assert (site.setup("check").status, site.setup("apply").err) == (0, "sbudget: nothing to do\n")
        assert site.setup("remove").status == 0
        assert site.picture() == before
    finally:
        for words in (
            "user alice where account=nlp", "account nlp where", "account lab where", "account bio where",
        ):  # fmt: skip
            site.sacctmgr(f"modify {words} cluster=setup set defaultqos=-1") if "nlp where" in words else None
            site.sacctmgr(f"modify {words} cluster=setup set qos=")
        site.sacctmgr("delete user where name=bob account=lab cluster=setup")
        site.sacctmgr("delete qos name=high,low")


def test_a_twin_of_normal_has_its_limits_and_what_waits_in_it_comes_home(site: Site) -> None:
    cluster = site.cluster
    site.sacctmgr("modify qos normal set maxtresperuser=gres/gpu=8 maxwall=60")
    try:
        before = site.picture()
        site.configure('[classes]\nnormal = "normal-spare"\n')
        assert site.setup("apply").status == 0
        show = ["sacctmgr", "-nP", "show", "qos", "format=maxtresperuser,maxwall", "where"]
        assert cluster.run([*show, "name=normal-spare"]).out == "gres/gpu=8|01:00:00\n"
        waits = cluster.submit("bob", "-A", "bio", "--qos=normal-spare", "--begin=now+1hour")
        held = cluster.submit("bob", "-A", "bio", "--qos=normal-spare", "--hold")
        begin = cluster.job(waits, "EligibleTime")
        assert site.setup("remove").status == 0
        assert [cluster.job(job, "QOS") for job in (waits, held)] == ["normal", "normal"]
        assert [cluster.job(job, "Priority") != "0" for job in (waits, held)] == [True, False]
        assert cluster.job(waits, "EligibleTime") == begin
        assert site.picture() == before
    finally:
        site.sacctmgr("modify qos normal set maxtresperuser=gres/gpu=-1 maxwall=-1")


def test_a_limit_that_an_existing_twin_does_not_have_is_named_and_refused(site: Site) -> None:
    site.sacctmgr("add qos high maxwall=60 grptres=gres/gpu=4")
    site.sacctmgr("add qos high-spare")
    try:
        before = site.picture()
        site.configure(KEPT)
        done = site.setup("apply")
        assert done.status == 23
        assert "high-spare would lose grptres=gres/gpu=4 of high; write: sacctmgr -i modify qos" in done.err
        assert site.picture() == before
    finally:
        site.sacctmgr("delete qos name=high,high-spare")


def test_jobs_are_moved_home_and_a_running_one_keeps_its_qos_until_it_ends(site: Site) -> None:
    before = site.untouched
    cluster = site.cluster
    assert site.setup("apply").status == 0
    running = cluster.submit("bob", "-A", "bio", "--qos=spare", "--gres=gpu:1")
    cluster.wait("it runs", lambda: cluster.job(running, "JobState") == "RUNNING")
    held = cluster.submit("alice", "-A", "nlp", "--qos=backed", "--hold", "-t", "77")
    array = cluster.submit("alice", "-A", "nlp", "--qos=spare", "--hold", "--array=1-4")
    removed = site.setup("remove")
    assert removed.status == 27
    assert f"QOS spare stays: 1 jobs use it ({running})" in removed.err
    assert "run sbudget setup remove again" in removed.err
    assert (cluster.job(running, "QOS"), cluster.job(running, "JobState")) == ("spare", "RUNNING")
    assert (cluster.job(held, "QOS"), cluster.job(held, "TimeLimit")) == ("normal", "01:17:00")
    assert cluster.job(array, "QOS") == "normal"
    assert site.setup("remove").status == 27, "again, with the same answer"
    cluster.run(["scancel", running])
    cluster.wait("it ended", lambda: cluster.job(running, "JobState") == "CANCELLED")
    assert site.setup("remove").status == 0
    assert site.picture() == before


def test_the_sites_own_plugin_works_again_at_the_next_submission(site: Site) -> None:
    before = site.plugin.read_bytes()
    try:
        site.plugin.write_text(OWN)
        future = time.time() + 2
        _touch(site.plugin, future)
        assert _comment(site) == "the site's own rule"
        picture = site.picture()
        refused = site.setup("apply")
        assert refused.status == 23
        assert 'SBUDGET_AS_MODULE = true; dofile("' in refused.err
        assert _comment(site) == "the site's own rule"
        assert site.setup("apply", "--replace").status == 0
        assert _comment(site) == ""
        assert site.setup("remove").status == 0
        assert _comment(site) == "the site's own rule"
        assert site.picture() == picture
    finally:
        site.plugin.write_bytes(before)
        _touch(site.plugin, time.time() + 5)


def _touch(path: Path, moment: float) -> None:
    os.utime(path, (moment, moment))


def _comment(site: Site) -> str:
    job = site.cluster.submit("alice", "-A", "nlp", "--hold")
    found = site.cluster.run(["squeue", "-h", "-j", job, "-O", "comment:40"]).out.strip()
    site.cluster.run(["scancel", job])
    return "" if found == "(null)" else found


def _broken_sacctmgr(site: Site, after: int) -> str:
    """A PATH whose sacctmgr loses slurmdbd after some changes."""
    folder = site.folder / "bin"
    folder.mkdir(exist_ok=True)
    real = shutil.which("sacctmgr")
    (folder / "sacctmgr").write_text(
        f'#!/bin/sh\n[ "$1" = -i ] || exec {real} "$@"\necho x >> {folder}/count\n'
        f'[ $(wc -l < {folder}/count) -le {after} ] && exec {real} "$@"\n'
        f"echo '{GONE}' >&2\nexit 1\n"
    )
    (folder / "sacctmgr").chmod(0o755)
    (folder / "count").unlink(missing_ok=True)
    return f"{folder}:{BIN}:/usr/bin:/bin:/usr/sbin"


def test_a_setup_that_broke_off_is_gone_on_with_and_undone(site: Site) -> None:
    before, after = site.untouched, 3
    broken = site.setup("apply", path=_broken_sacctmgr(site, after))
    assert broken.status == 24
    assert broken.err.startswith("sbudget: slurmdbd does not answer")
    assert len(broken.out.splitlines()) == after
    assert site.setup("remove").status == 0
    assert site.picture() == before
    assert site.setup("apply", path=_broken_sacctmgr(site, after)).status == 24
    assert site.setup("apply").status == 0
    assert site.setup("check").status == 0
    assert site.setup("remove", path=_broken_sacctmgr(site, after)).status == 24
    assert site.setup("remove").status == 0
    assert site.picture() == before


def test_who_has_no_rights_is_told_so(site: Site) -> None:
    site.state.mkdir(mode=0o777)
    site.state.chmod(0o777)
    before = site.untouched
    as_user = site.setup("check", user="alice")
    assert as_user.status == 23
    assert "this user's AdminLevel is none" in as_user.out
    assert "set adminlevel=operator" in as_user.out
    assert site.setup("apply", user="alice").status == 23
    operator = site.setup("apply", user="sbudget")
    assert operator.status == 22
    assert "AdminLevel=Administrator" in operator.err
    assert "only an Administrator of slurmdbd may change QOS" in site.setup("check", user="sbudget").out
    assert site.picture() == before


def test_slurmdbd_down(site: Site) -> None:
    site.cluster.daemon("stop", "slurmdbd")
    try:
        for command in ("check", "plan", "apply", "remove"):
            done = site.setup(command)
            assert (done.status, done.err.count("\n")) == (24, 1), done
    finally:
        site.cluster.daemon("start", "slurmdbd")
        show = ["sacctmgr", "-n", "show", "qos"]
        site.cluster.wait("slurmdbd", lambda: site.cluster.run(show, check=False).status == 0)


def test_slurms_commands_missing(site: Site) -> None:
    done = site.setup("check", path=str(BIN))
    assert (done.status, done.err.count("\n")) == (20, 1)
    assert "Install Slurm's commands" in done.err


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("PreemptType=preempt/qos", "PreemptType=preempt/partition_prio", "PreemptType=preempt/qos"),
        ("gres/gpu,gres/gpu:a100", "license/x", "AccountingStorageTRES=gres/gpu"),
    ],
)
def test_another_slurm_conf_is_refused_with_the_line_to_write(site: Site, old: str, new: str, line: str) -> None:
    conf = site.cluster.conf
    text, before = conf.read_text(), site.untouched
    assert old in text
    try:
        conf.write_text(text.replace(old, new))
        _restart(site)
        done = site.setup("apply")
        assert done.status == 23
        assert f"write: {line}" in done.err
    finally:
        conf.write_text(text)
        _restart(site)
    assert site.picture() == before


def _restart(site: Site) -> None:
    site.cluster.daemon("restart", "slurmctld")
    site.cluster.wait("slurmctld", lambda: site.cluster.run(["scontrol", "ping"], check=False).status == 0)


def test_the_model_of_the_unit_tests_stores_what_slurmdbd_stores(site: Site) -> None:
    """Lists of each form, each operator on each of them, and the deletion of a QOS."""
    model = Slurmdbd()
    model.account("root", "", "normal")
    for account, parent in (("lab", "root"), ("nlp", "lab"), ("bio", "root")):
        model.account(account, parent)
    for user, account in (("root", "root"), ("alice", "nlp"), ("bob", "bio"), ("sbudget", "lab")):
        model.user(user, account)
    script = [
        "add qos x priority=3",
        "add qos y",
        "modify qos x set preempt+=y",
        "modify account lab where cluster=setup set qos+=x,y",
        "modify account lab where cluster=setup set qos-=y",
        "modify account nlp where cluster=setup set qos=x,normal",
        "modify account nlp where cluster=setup set qos+=y",
        "modify account nlp where cluster=setup set qos-=x",
        "modify account bio where cluster=setup set qos-=normal",
        "modify user bob where account=bio cluster=setup partition= set qos+=normal",
        "modify user alice where account=nlp cluster=setup partition= set qos=y",
        "modify user alice where account=nlp cluster=setup partition= set qos+=x",
        "modify account lab where cluster=setup set qos=",
        "modify account lab where cluster=setup set qos+=y",
        "modify qos x set preempt-=y",
        "modify qos x set preempt+=y",
        "modify account nlp where cluster=setup set qos-=y",
        "modify user alice where account=nlp cluster=setup partition= set qos-=y",
        "modify qos x set preempt-=y",
        "delete qos name=y",
        "modify user alice where account=nlp cluster=setup partition= set qos=",
        "modify account nlp where cluster=setup set qos=",
        "modify account bio where cluster=setup set qos=",
        "modify user bob where account=bio cluster=setup partition= set qos=",
        "modify account lab where cluster=setup set qos=",
        "delete qos name=x",
    ]
    model.qos["normal"] = StoredQos({"priority": "0"})
    for line in script:
        site.sacctmgr(line)
        model.do(Step("", (tuple(line.replace("cluster=setup", "cluster=demo").split()),)))
        assert _stored(site) == {
            key: ",".join(sorted(stored.qos or stored.delta)) for key, stored in model.associations.items()
        }, line
        if " qos " not in line:
            continue
        preempt = site.cluster.run(["sacctmgr", "-nP", "show", "qos", "format=name,preempt"]).out
        assert dict(row.split("|") for row in preempt.splitlines()) == {
            name: ",".join(sorted(stored.preempt)) for name, stored in model.qos.items()
        }, line


def _stored(site: Site) -> dict[tuple[str, str, str], str]:
    fields = "format=account,user,partition,qos"
    shown = site.cluster.run(["sacctmgr", "-nP", "show", "assoc", "withrawqoslevel", "woplimits", fields]).out
    rows = [line.split("|") for line in shown.splitlines()]
    return {(a, u, p): ",".join(sorted(q.split(","))) for a, u, p, q in rows}
