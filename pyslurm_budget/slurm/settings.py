"""What slurmctld says of itself (``scontrol show config``) and slurmdbd of users (``sacctmgr show assoc``)."""

from __future__ import annotations

import re
from collections import defaultdict
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import Controller
from pyslurm_budget.errors import SlurmOutputError
from pyslurm_budget.slurm.fields import epoch, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

ASSOC_FORMAT = "account,user,parentname,qos"
_CLOCK = re.compile(r"Configuration data as of (\S+)")
_SETTING = re.compile(r"([A-Za-z][^\s=]*)\s*= ?(.*)")
_RELEASE = re.compile(r"([0-9]+)\.([0-9]+)\.([0-9]+)")
_NUMBER = re.compile(r"[0-9]+")

Associations = tuple["Mapping[tuple[str, str], frozenset[str]]", "Mapping[str, str | None]"]


def controller_of(text: str) -> Controller:
    """Read ``scontrol show config``; its first line is slurmctld's own clock. Raises SlurmOutputError."""
    first, _, rest = text.partition("\n")
    clock = _CLOCK.fullmatch(first.strip())
    if clock is None:
        raise SlurmOutputError(f"scontrol show config: cannot read the line {first[:160]!r}")
    settings: dict[str, str] = {}
    for line in rest.splitlines():
        match = _SETTING.fullmatch(line.rstrip())
        if match is not None:
            settings.setdefault(match[1], match[2])
    try:
        return _controller(clock[1], settings)
    except (ValueError, KeyError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else error
        raise SlurmOutputError(f"scontrol show config: cannot be read: {why}") from error


def associations_of(text: str) -> Associations:
    """Read ``sacctmgr -nP show assoc format=account,user,parentname,qos``.

    Returns the QOS names by (account, user), and the parent by account. A user without a list of his own has his
    account's, an account without one its parent's; ``+name`` and ``-name`` change the inherited list. Associations of
    one user in one account that differ by partition are joined.
    """
    users: dict[tuple[str, str], list[str]] = defaultdict(list)
    lists: dict[str, str] = {}
    parents: dict[str, str | None] = {}
    for line in text.splitlines():
        cells = line.split("|")
        if len(cells) != 4 or not cells[0]:
            raise SlurmOutputError(f"sacctmgr show assoc: cannot read the line {line[:160]!r}")
        account, user, parent, qos = cells
        if user:
            users[(account, user)].append(qos)
        else:
            parents[account], lists[account] = parent or None, qos
    if not parents:
        raise SlurmOutputError("sacctmgr show assoc: no account at all; is the cluster registered with slurmdbd?")
    inherited = {account: _account_list(account, lists, parents) for account in parents}
    allowed = {
        (account, user): frozenset().union(*(_applied(qos, inherited.get(account, frozenset())) for qos in found))
        for (account, user), found in users.items()
    }
    return MappingProxyType(allowed), MappingProxyType(parents)


def _controller(clock: str, settings: dict[str, str]) -> Controller:
    """Build the controller's facts; errors are ``ValueError`` or ``KeyError``."""
    now, started = epoch(clock), epoch(settings["BOOT_TIME"])
    release = _RELEASE.match(settings["SLURM_VERSION"])
    if now is None or started is None or release is None:
        raise ValueError(f"clock {clock}, BOOT_TIME={settings['BOOT_TIME']}, version {settings['SLURM_VERSION']}")
    weights = (value for key, value in settings.items() if key.startswith("PriorityWeight"))
    kill_wait = _NUMBER.match(settings["KillWait"])
    if kill_wait is None:
        raise ValueError(f"KillWait={settings['KillWait']}")
    return Controller(
        cluster=settings["ClusterName"],
        now=now,
        release=(int(release[1]), int(release[2]), int(release[3])),
        started=started,
        kill_wait=int(kill_wait[0]),
        preempt_type=text_of(settings["PreemptType"]),
        preempt_mode=text_of(settings["PreemptMode"]),
        weights=sum(_weight(value) for value in weights),
        settings=MappingProxyType(settings),
    )


def _weight(value: str) -> int:
    """A priority weight: a number, or the sum of a TRES list (``CPU=1000,GRES/gpu=5000``), rounded up."""
    total = 0
    for part in text_of(value).split(","):
        number = part.rpartition("=")[2]
        if number:
            whole, _, fraction = number.partition(".")
            total += int(whole or 0) + bool(fraction.strip("0"))
    return total


def _account_list(account: str, lists: Mapping[str, str], parents: Mapping[str, str | None]) -> frozenset[str]:
    """The QOS of an account, its ancestors' lists applied from the root down; raises on a cycle of parents."""
    path: list[str] = []
    at: str | None = account
    while at is not None and at in lists:
        if at in path:
            raise SlurmOutputError(f"sacctmgr show assoc: account {at} is its own ancestor")
        path.append(at)
        at = parents.get(at)
    found: frozenset[str] = frozenset()
    for name in reversed(path):
        found = _applied(lists[name], found)
    return found


def _applied(qos: str, inherited: frozenset[str]) -> frozenset[str]:
    """A QOS list on top of the inherited one: empty inherits, plain names replace, signed names change."""
    names = [name for name in qos.split(",") if name]
    if not names:
        return inherited
    plain = frozenset(name for name in names if name[0] not in "+-")
    base = plain or inherited
    added = frozenset(name[1:] for name in names if name[0] == "+")
    removed = frozenset(name[1:] for name in names if name[0] == "-")
    return (base | added) - removed
