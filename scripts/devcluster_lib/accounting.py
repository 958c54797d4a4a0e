"""Accounts and users: in slurmdbd, and on this machine. Users that were made here are remembered, to be removed."""

from __future__ import annotations

import pwd
import subprocess
from typing import TYPE_CHECKING

from devcluster_lib.daemons import run, wait_for
from devcluster_lib.layout import DevclusterError

if TYPE_CHECKING:
    from devcluster_lib.layout import Layout

CREATED_USERS = "created-users"
NOTHING_NEW = ("already exist", "Nothing new added", "Nothing modified")


def sacctmgr(layout: Layout, *words: str) -> None:
    """Run sacctmgr; what is there already is no failure."""
    done = run(layout, ["sacctmgr", "-i", *words], timeout=30)
    said = f"{done.stdout}\n{done.stderr}".strip()
    if done.returncode and not any(text in said for text in NOTHING_NEW):
        raise DevclusterError(
            f"sacctmgr {' '.join(words)} failed: {said.splitlines()[-1] if said else done.returncode}"
        )


def register(layout: Layout) -> None:
    """The cluster itself: before slurmctld starts for the first time."""
    wait_for(
        "slurmdbd's answer",
        lambda: run(layout, ["sacctmgr", "-nP", "show", "cluster"], 5).returncode == 0,
        60,
        layout.log("slurmdbd"),
    )
    sacctmgr(layout, "add", "cluster", layout.options.name)


def populate(layout: Layout) -> None:
    """QOS, accounts, users and the operator."""
    options = layout.options
    for qos in options.qos:
        sacctmgr(layout, "add", "qos", qos)
    for path in options.accounts:
        parents = path.split("/")
        for parent, account in zip(["root", *parents], parents, strict=False):
            sacctmgr(layout, "add", "account", account, f"parent={parent}", f"cluster={options.name}")
            if options.qos:
                sacctmgr(layout, "modify", "account", account, "set", f"qos+={','.join(options.qos)}")
    for user, accounts in options.users.items():
        unix_user(layout, user)
        for account in accounts:
            sacctmgr(layout, "add", "user", user, f"account={account}", f"cluster={options.name}")
    if options.operator:
        unix_user(layout, options.operator)
        home = options.accounts[0].split("/")[-1]
        sacctmgr(layout, "add", "user", options.operator, f"account={home}", f"cluster={options.name}")
        sacctmgr(layout, "modify", "user", options.operator, "set", "adminlevel=operator")


def unix_user(layout: Layout, name: str) -> None:
    """Make a UNIX user if there is none."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        done = subprocess.run(
            ["useradd", "-M", "-d", "/", "-s", "/bin/sh", name],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        if done.returncode:
            raise DevclusterError(f"useradd {name} failed: {done.stderr.strip()}") from None
        with (layout.root / CREATED_USERS).open("a", encoding="utf-8") as created:
            created.write(f"{name}\n")


def remove_users(layout: Layout) -> None:
    """Remove the UNIX users that were made for this cluster."""
    try:
        names = (layout.root / CREATED_USERS).read_text(encoding="utf-8").split()
    except OSError:
        return
    for name in names:
        subprocess.run(["userdel", name], capture_output=True, timeout=30, check=False)
