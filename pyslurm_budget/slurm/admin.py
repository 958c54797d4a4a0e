"""sacctmgr as an administrator uses it: reading what `setup` needs to know, and making its changes."""

from __future__ import annotations

import os
import pwd
import re
from typing import TYPE_CHECKING

from pyslurm_budget.errors import (
    SbudgetError,
    SlurmctldError,
    SlurmMissingError,
    SlurmOutputError,
    SlurmPermissionError,
    SlurmSetupError,
)
from pyslurm_budget.service.setup import LIMITS, Association, PartitionRule, Qos, SlurmFacts
from pyslurm_budget.slurm.failures import failure, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyslurm_budget.service.setup import Step
    from pyslurm_budget.slurm.queue import SlurmQueue
    from pyslurm_budget.slurm.run import Runner

NO_LIMIT = {"usagefactor": ("1.000000",)}
# Answers that mean "it is so already"; whether it is, the caller reads back.
NOTHING_TO_DO = ("nothing modified", "nothing new added", "already exists", "nothing deleted")
REFUSED = "Invalid qos specification"
NO_RIGHT = ("privilege", "permission denied")
NO_DEFAULT = "don't have access to their default qos"
RULE = re.compile(r"(?:^|\s)(PartitionName|AllowQos|DenyQos)=(\S*)")
USER = re.compile(r"(.+)\(([0-9]+)\)")
LEVELS = {"operator": "operator", "administrator": "administrator", "admin": "administrator"}


class SlurmAdmin:
    """The accounting side of one cluster."""

    def __init__(self, runner: Runner, queue: SlurmQueue) -> None:
        """``queue`` reads slurm.conf's settings from slurmctld."""
        self._runner = runner
        self._queue = queue

    def facts(self) -> SlurmFacts:
        """Everything that the check and the plan need, or a failure."""
        controller = self._queue.controller()
        associations, elsewhere = self._associations(controller.cluster)
        return SlurmFacts(
            cluster=controller.cluster,
            settings=controller.settings,
            weights=controller.weights,
            qos={qos.name: qos for qos in self._qos()},
            associations=associations,
            admin_level=self._admin_level(controller.settings.get("SlurmUser", "")),
            partitions=partition_rules(self._runner.read("scontrol", "-a", "-o", "show", "partition")),
            elsewhere=elsewhere,
        )

    def _table(self, what: str, fields: tuple[str, ...], *words: str) -> Iterator[dict[str, str]]:
        text = self._runner.read("sacctmgr", "-nP", "show", what, *words, f"format={','.join(fields)}", strict=True)
        for line in text.splitlines():
            values = line.split("|")
            if len(values) != len(fields):
                raise SlurmOutputError(
                    f"sacctmgr show {what}: {len(values)} fields where {len(fields)} are due: {line[:160]!r}"
                )
            yield dict(zip(fields, values, strict=True))

    def _qos(self) -> Iterator[Qos]:
        fields = ("name", "priority", "preempt", "preemptmode", "gracetime", *LIMITS)
        for row in self._table("qos", fields):
            limits = {name: row[name] for name in LIMITS if row[name] not in ("", *NO_LIMIT.get(name, ()))}
            try:
                priority, grace = int(row["priority"] or "0"), _seconds(row["gracetime"])
            except ValueError:
                raise SlurmOutputError(f"sacctmgr show qos: cannot read the line of {row['name']!r}") from None
            yield Qos(row["name"], priority, _names(row["preempt"]), row["preemptmode"], grace, limits)

    def _associations(self, cluster: str) -> tuple[tuple[Association, ...], frozenset[str]]:
        """Lists as stored, and the QOS that other clusters use: ``withrawqoslevel`` keeps the signs, ``woplimits``
        leaves out what is inherited."""
        fields = ("cluster", "account", "user", "partition", "parentname", "qos", "defaultqos")
        found: list[Association] = []
        elsewhere: set[str] = set()
        for row in self._table("assoc", fields, "withrawqoslevel", "woplimits"):
            if row["cluster"] == cluster:
                who = (row["account"], row["user"], row["partition"], row["parentname"])
                found.append(Association(*who, _names(row["qos"]), row["defaultqos"]))
            else:
                elsewhere |= {name.lstrip("+-") for name in _names(row["qos"])} | _names(row["defaultqos"])
        if not found:
            raise SlurmOutputError(
                f"sacctmgr show assoc: no account at all; is the cluster {cluster} registered with slurmdbd?"
            )
        return tuple(found), frozenset(elsewhere)

    def _admin_level(self, slurm_user: str) -> str:
        """The AdminLevel that slurmdbd gives to this user; root and SlurmUser have all rights."""
        uid = os.geteuid()
        if uid in (0, user_of(slurm_user)[1]):
            return "administrator"
        try:
            name = pwd.getpwuid(uid).pw_name
        except KeyError:
            return "none"
        levels = [row["adminlevel"].lower() for row in self._table("user", ("user", "adminlevel"), f"name={name}")]
        return LEVELS.get(levels[0], "none") if levels else "none"

    def accepts(self, account: str, user: str, qos: str, partition: str) -> bool | None:
        """Whether slurmctld itself lets a user have a QOS; ``None`` where it says neither, and for all but root.

        slurmctld shows the lists in its memory nowhere, so it is asked for a job that it does not make.
        """
        if os.geteuid() != 0 or not _is_user(user):
            return None
        command = ("sbatch", "--test-only", f"--uid={user}", f"--account={account}", f"--qos={qos}",
                   f"--partition={partition}", "--nodes=1", "--time=1", "--output=/dev/null", "--wrap=:")  # fmt: skip
        answer = self._runner.run(*command)
        if answer.status == 0:
            return True
        if REFUSED in answer.out + answer.err:
            return False
        found = failure(command, answer.err, answer.status)
        if isinstance(found, (SlurmctldError, SlurmMissingError)):
            raise found
        return None

    def do(self, step: Step) -> None:
        """One step by ``sacctmgr -i``. That something is so already is no failure; the caller reads back.

        Raises SlurmPermissionError, SlurmSetupError with sacctmgr's words, or slurmdbd's failure.
        """
        for words in step.commands:
            self._command(words)

    def _command(self, words: tuple[str, ...]) -> None:
        answer = self._runner.run("sacctmgr", "-i", *words)
        said = f"{answer.out}\n{answer.err}"
        lower = said.lower()
        shown = f"`sacctmgr {' '.join(words[:3])}`"
        # sacctmgr of 22.05 leaves out a value that it cannot read, and ends with status 0.
        failed = answer.status != 0 or "error:" in answer.err
        if NO_DEFAULT in lower:
            raise SlurmSetupError(f"{shown}: an association's DefaultQOS would not be in its list: {sentence(said)}")
        if not failed or (any(text in lower for text in NOTHING_TO_DO) and "error:" not in answer.err):
            return
        if any(text in lower for text in NO_RIGHT):
            raise SlurmPermissionError(
                f"{shown}: slurmdbd does not let this user do that; run it as root or SlurmUser, or as a user with "
                "AdminLevel=Administrator"
            )
        raise self._failure(words, answer.err or answer.out, answer.status, shown)

    def _failure(self, words: tuple[str, ...], said: str, status: int, shown: str) -> SbudgetError:
        """slurmdbd's own failure, else what sacctmgr refuses."""
        found = failure(("sacctmgr", *words), said, status)
        return SlurmSetupError(f"{shown}: {sentence(said)}") if isinstance(found, SlurmOutputError) else found


def partition_rules(text: str) -> dict[str, PartitionRule]:
    """AllowQos and DenyQos of each partition, from ``scontrol -o show partition``."""
    found = {}
    for line in text.splitlines():
        words = {match[1]: match[2] for match in RULE.finditer(line)}
        if not words:
            continue
        if "PartitionName" not in words:
            raise SlurmOutputError(f"scontrol show partition: cannot read the line {line[:160]!r}")
        allow = words.get("AllowQos", "ALL")
        rule = PartitionRule(None if allow == "ALL" else _names(allow), _names(words.get("DenyQos", "")))
        found[words["PartitionName"]] = rule
    return found


def user_of(text: str) -> tuple[str, int]:
    """Name and uid of a user as ``scontrol show config`` writes him: ``slurm(64030)``; raises SlurmOutputError."""
    match = USER.fullmatch(text.strip())
    if match is None:
        raise SlurmOutputError(f"scontrol show config: cannot read SlurmUser = {text!r}")
    return match[1], int(match[2])


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _names(text: str) -> frozenset[str]:
    return frozenset(name for name in text.split(",") if name)


def _seconds(text: str) -> int:
    """``[D-]HH:MM:SS`` as seconds; a minus sign, or any word, is "for ever" (-1)."""
    if not text:
        return 0
    days, _, rest = text.rpartition("-")
    if text.startswith("-") or not text[0].isdigit():
        return -1
    hours, minutes, seconds = (int(part) for part in rest.split(":"))
    return ((int(days or "0") * 24 + hours) * 60 + minutes) * 60 + seconds


__all__ = ["SlurmAdmin", "partition_rules", "user_of"]
