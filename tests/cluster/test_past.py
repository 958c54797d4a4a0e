"""What nodes were, as slurmdbd tells it, on a real cluster: our reader says what was done, and what Slurm's own
command and the database say."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pyslurm_budget.domain.capacity import is_out
from pyslurm_budget.domain.holding import Holding, NodeEvent
from pyslurm_budget.slurm.events import SlurmHistory
from pyslurm_budget.slurm.run import Runner
from tests.cluster.devcluster import DevCluster
from tests.cluster.site import Site
from tests.cluster.slurmdbd import CLUSTER, Accounts

pytestmark = pytest.mark.cluster
REASON = "swap | board=1"
NEAR = 3  # seconds from the command to what it does


@dataclass
class Past:
    """The cluster, and our reader of what was since the test began."""

    cluster: DevCluster
    accounts: Accounts
    began: int

    def scontrol(self, *words: str) -> int:
        """Returns when it was done."""
        self.cluster.run(["scontrol", *words])
        return int(time.time())

    def sacctmgr(self, what: str, *words: str, fields: str) -> list[list[str]]:
        """Slurm's own list, with calendar times in UTC."""
        start = datetime.fromtimestamp(self.began, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        argv = ["sacctmgr", "-nP", "show", what, *words, f"start={start}", f"format={fields}"]
        out = self.cluster.run(argv, env={"TZ": "UTC"}).out
        return [line.split("|", fields.count(",")) for line in out.splitlines()]

    @property
    def reader(self) -> SlurmHistory:
        return SlurmHistory(Runner(self.cluster.conf), CLUSTER)

    def events(self) -> list[NodeEvent]:
        return sorted(self.reader.node_events(self.began, int(time.time()) + 1), key=lambda e: (e.start, e.node))

    def holdings(self) -> list[Holding]:
        return sorted(self.reader.reservations(self.began, int(time.time()) + 1), key=lambda h: (h.name, h.start))

    def nodes_in_database(self) -> list[tuple[str, int, int]]:
        """Node, begin and end of each event."""
        query = (
            f"SELECT node_name, time_start, time_end FROM {CLUSTER}_event_table WHERE node_name <> '' "
            f"AND (time_end = 0 OR time_end >= {self.began})"
        )
        return sorted(self.accounts.run(query))


@pytest.fixture
def past(bare_site: Site, tmp_path: Path) -> Past:
    time.sleep(1.1)  # nothing of before belongs to it
    return Past(bare_site.cluster, Accounts(bare_site.cluster, tmp_path), int(time.time()))


def moment(text: str) -> int | None:
    return None if text == "Unknown" else int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def test_a_node_that_is_set_out_of_service_and_taken_back(past: Past) -> None:
    drained = past.scontrol("update", "nodename=n1", "state=drain", f"reason={REASON}")
    time.sleep(3)
    back = past.scontrol("update", "nodename=n1", "state=resume")
    out = past.scontrol("update", "nodename=n2", "state=drain", "reason=open")
    fell = past.scontrol("update", "nodename=n3", "state=down", "reason=fan")
    time.sleep(3)
    # Its slurmd may have registered meanwhile, which brings it back: then there is nothing to resume.
    past.cluster.run(["scontrol", "update", "nodename=n3", "state=resume"], check=False)
    up = int(time.time())
    past.cluster.wait("slurmdbd knows all", lambda: bool(on(past, "n2")) and all(e.end for e in on(past, "n3")))

    (first,) = on(past, "n1")
    assert (first.state, first.reason) == ("DRAIN", REASON)
    assert abs(first.start - drained) <= NEAR
    assert first.end is not None
    assert abs(first.end - back) <= NEAR
    (second,) = on(past, "n2")
    assert (second.end, second.reason) == (None, "open")
    assert abs(second.start - out) <= NEAR
    (third,) = on(past, "n3")
    assert third.state.startswith("DOWN")
    assert abs(third.start - fell) <= NEAR
    assert third.end is not None
    assert fell - NEAR <= third.end <= up + NEAR
    assert not on(past, "n4")
    assert all(is_out(event.state) for event in past.events())

    told = past.sacctmgr("event", "event=node", fields="TimeStart,TimeEnd,NodeName,State,Reason")
    mine = [(e.start, e.end, e.node, e.state, e.reason) for e in past.events()]
    assert sorted(mine, key=str) == sorted(
        [(moment(begin) or 0, moment(end), *rest) for begin, end, *rest in told], key=str
    )
    assert past.nodes_in_database() == sorted((e.node, e.start, e.end or 0) for e in past.events())
    past.scontrol("update", "nodename=n2", "state=resume")
    past.cluster.wait("n2 is back", lambda: all(e.end is not None for e in on(past, "n2")))


def on(past: Past, node: str) -> list[NodeEvent]:
    return [event for event in past.events() if event.node == node]


def test_a_reservation_that_is_made_changed_and_deleted(past: Past) -> None:
    flags = "flags=ignore_jobs"
    made = past.scontrol(
        *("create", "reservation=bought", "starttime=now", "duration=60", "nodes=n1"),
        *("accounts=nlp,vision", flags),
    )
    past.scontrol(
        "create", "reservation=work", "starttime=now", "duration=30", "nodes=n4", "user=root", f"{flags},maint"
    )
    past.scontrol("create", "reservation=hers", "starttime=now", "duration=30", "nodes=n3", "user=alice", flags)
    time.sleep(3)
    more = past.scontrol("update", "reservation=bought", "nodes=n[1-2]")
    time.sleep(3)
    other = past.scontrol("update", "reservation=bought", "accounts=bio")
    time.sleep(3)
    gone = past.scontrol("delete", "reservation=bought")
    for name in ("work", "hers"):
        past.scontrol("delete", f"reservation={name}")
    past.cluster.wait(
        "slurmdbd knows that all are gone", lambda: all(h.end <= int(time.time()) for h in past.holdings())
    )

    found = [h for h in past.holdings() if h.end > h.start]
    bought = [h for h in found if h.name == "bought"]
    told = [(h.accounts, h.nodes) for h in bought]
    both = ("n1", "n2")
    assert told == [(("nlp", "vision"), ("n1",)), (("nlp", "vision"), both), (("bio",), both)]
    for holding, begin, end in zip(bought, (made, more, other), (more, other, gone), strict=True):
        assert abs(holding.start - begin) <= NEAR
        assert abs(holding.end - end) <= NEAR
    assert [h.end for h in bought[:-1]] == [h.start for h in bought[1:]], "each second belongs to one of them"
    assert {h.id for h in bought} == {bought[0].id}
    assert [(h.cpus, h.gpus) for h in bought] == [(16, None), (32, None), (32, None)]
    (work,) = [h for h in found if h.name == "work"]
    assert (work.apart, work.accounts, work.nodes) == (True, (), ("n4",))
    (hers,) = [h for h in found if h.name == "hers"]
    assert (hers.apart, hers.accounts, hers.nodes) == (False, (), ("n3",)), "bought for no account"

    fields = "Name,Start,End,NodeNames"
    theirs = past.sacctmgr("reservation", fields=fields)
    names = {"n1": ("n1",), "n[1-2]": ("n1", "n2"), "n3": ("n3",), "n4": ("n4",)}
    mine = sorted((h.name, h.start, h.end, h.nodes) for h in past.holdings())
    assert mine == sorted((name, moment(begin), moment(end), names[nodes]) for name, begin, end, nodes in theirs)
