"""What must hold at the end, from Slurm's own commands; only "wasted" and the ledger's totals ask the product."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

from tests import checker
from tests.cluster.site import GPUS, Site, ledger_of

if TYPE_CHECKING:
    from collections.abc import Iterable

# Longer than an epilog, a requeue and a cycle together.
TOOK_PLACE = 90
NAMES = ("JobID", "Submit", "Start", "End", "State", "QOS", "Comment")


def requeues(rows: Iterable[dict[str, str]]) -> int:
    """Runs that were requeued, by us or by Slurm for us."""
    return sum(row["State"].startswith(("REQUEUED", "PREEMPTED")) for row in rows)


def broken(rows: list[dict[str, str]]) -> list[str]:
    """Contracts that were broken, by the checker that knows nothing of the product."""
    found = checker.rows("\n".join("|".join(row[n] for n in NAMES) for row in rows))
    return checker.broken(found, default=10, backed=frozenset({"backed", "claim"}))


def lost(site: Site, jobs: Iterable[str], rows: list[dict[str, str]]) -> list[str]:
    """Jobs that neither are in the queue, unheld, nor have ended by themselves. Nobody has cancelled one yet."""
    last = {row["JobID"]: row for row in sorted(rows, key=lambda r: int(r["Submit"]))}
    waiting = site.cluster.run(["squeue", "-h", "-a", "-o", "%i|%Q|%T|%r"]).out.splitlines()
    queue = {line.split("|")[0]: line.split("|")[1:] for line in waiting}
    faults = []
    for job in jobs:
        if job in queue:
            priority, state, reason = queue[job]
            if state == "PENDING" and priority == "0":
                faults.append(f"{job} is held: {reason}")
        elif job not in last:
            faults.append(f"{job} is neither in the queue nor in accounting")
        elif last[job]["State"] != "COMPLETED":
            faults.append(f"{job} has ended as {last[job]['State']}")
    return faults


def wasted(site: Site, rows: list[dict[str, str]], accidents: list[tuple[int, str]]) -> list[str]:
    """Requeues for a job that did not start in the time that it takes to make room, with the accidents of that time:
    whether it was foreseeable a reader has to judge. The last ones before the end are not judged."""
    starts: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        if row["Start"].isdigit():
            starts[row["JobID"]].append(int(row["Start"]))
    last = max((at for times in starts.values() for at in times), default=0)
    with ledger_of(site) as ledger:
        made = [i for i in ledger.intents() if i.action.kind.is_requeue and i.action.for_ref and i.state == "done"]
    found = []
    for i in made:
        until = i.at + TOOK_PLACE
        if until < last and not any(i.at <= at <= until for at in starts[i.action.for_ref or ""]):
            meanwhile = ", ".join(f"{what} after {at - i.at} s" for at, what in accidents if i.at - 30 <= at <= until)
            found.append(f"{i.action.ref} at {i.at} for {i.action.for_ref}: not within {TOOK_PLACE} s ({meanwhile})")
    return found


def unequal(site: Site, rows: list[dict[str, str]]) -> list[str]:
    """Accounts whose GPU-hours differ between our report and sacct's rows. Everything has ended."""
    seconds: dict[str, int] = defaultdict(int)
    for row in rows:
        found = GPUS.search(row["AllocTRES"])
        if found and row["Start"].isdigit():
            seconds[row["Account"]] += int(found.group(1)) * (int(row["End"]) - int(row["Start"]))
    said = site.sbudget("report", "usage", "--by", "account", "-S", "2020-01-01", "--json").out
    ours = {row["account"]: row["gpu_hours"] for row in json.loads(said)["rows"]}
    return [
        f"{account}: {ours.get(account, 0)} GPU-hours in the ledger, {seconds[account] / 3600:.4f} by sacct"
        for account in sorted(seconds)
        if abs(float(ours.get(account, 0)) * 3600 - seconds[account]) >= 1
    ]
