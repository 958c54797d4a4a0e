"""The cluster, its QOS, accounts and users in slurmdbd."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devcluster_lib.layout import DevclusterError
from devcluster_lib.processes import run, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devcluster_lib.layout import Layout

NOTHING_NEW = ("already exist", "Nothing new added", "Nothing modified")


def sacctmgr(layout: Layout, *words: str) -> None:
    """Run sacctmgr; what is there already is no failure."""
    done = run(layout, ["sacctmgr", "-i", *words], timeout=30)
    said = f"{done.stdout}\n{done.stderr}".strip()
    if done.returncode and not any(text in said for text in NOTHING_NEW):
        last = said.splitlines()[-1].strip() if said else f"status {done.returncode}"
        raise DevclusterError(f"sacctmgr {' '.join(words)} failed: {last}; see {layout.log('slurmdbd')}")


def register(layout: Layout) -> None:
    """The cluster itself: slurmctld does not serve before slurmdbd knows it."""
    ask = ["sacctmgr", "-nP", "show", "cluster"]
    wait_for("slurmdbd answers", lambda: run(layout, ask, 5).returncode == 0, 60, [layout.log("slurmdbd")])
    sacctmgr(layout, "add", "cluster", layout.options.name)


def populate(layout: Layout) -> None:
    """QOS, accounts, users and the operator."""
    options = layout.options
    cluster = f"cluster={options.name}"
    for qos in options.qos:
        sacctmgr(layout, "add", "qos", qos)
    for parent, names in children(options.accounts).items():
        # Many in one call: on old releases each call takes half a second.
        sacctmgr(layout, "add", "account", ",".join(names), f"parent={parent}", cluster)
        if options.qos:
            sacctmgr(layout, "modify", "account", ",".join(names), "set", f"qos+={','.join(options.qos)}")
    for user, accounts in options.users.items():
        theirs = (f"account={','.join(accounts)}", f"defaultaccount={accounts[0]}")
        sacctmgr(layout, "add", "user", user, *theirs, cluster)
    if options.operator:
        home = options.users.get(options.operator, options.accounts[0].split("/")[-1:])[0]
        sacctmgr(layout, "add", "user", options.operator, f"account={home}", cluster, "adminlevel=operator")


def children(paths: Iterable[str]) -> dict[str, list[str]]:
    """Accounts by parent, parents first, from paths such as ``a/b``."""
    found: dict[str, list[str]] = {}
    for path in sorted(paths, key=lambda path: path.count("/")):
        names = path.split("/")
        for parent, account in zip(["root", *names], names, strict=False):
            if account not in found.setdefault(parent, []):
                found[parent].append(account)
    return found
