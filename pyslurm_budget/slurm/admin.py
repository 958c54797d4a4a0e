"""sacctmgr: reading what `setup` needs to know, and making its changes."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

from pyslurm_budget.errors import SlurmOutputError, SlurmPermissionError, SlurmSetupError
from pyslurm_budget.service.setup import LIMITS, Association, Qos, SlurmFacts, Step
from pyslurm_budget.slurm.failures import failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyslurm_budget.slurm.queue import SlurmQueue
    from pyslurm_budget.slurm.run import Runner

ADMIN = ("operator", "administrator")
UNSET = {"": "", "00:00:00": "", "1.000000": ""}
NOTHING_TO_DO = ("Nothing modified", "Nothing new added", "already exist", "Nothing deleted")
IN_USE = ("in use", "still has running jobs", "Job(s) active")


class SlurmAdmin:
    """The accounting side of one cluster, as an administrator sees it."""

    def __init__(self, runner: Runner, queue: SlurmQueue) -> None:
        """``queue`` reads slurm.conf's settings from slurmctld."""
        self._runner = runner
        self._queue = queue

    def facts(self) -> SlurmFacts:
        """Everything that the check and the plan need."""
        controller = self._queue.controller()
        return SlurmFacts(
            settings=controller.settings,
            weights=controller.weights,
            qos={q.name: q for q in self._qos()},
            associations=tuple(self._associations(controller.cluster)),
            operator=self._is_operator(controller.settings.get("SlurmUser", "")),
        )

    def _table(self, what: str, fields: tuple[str, ...], *words: str) -> Iterator[dict[str, str]]:
        text = self._runner.read("sacctmgr", "-nP", "show", what, *words, f"format={','.join(fields)}", strict=True)
        for line in text.splitlines():
            values = line.split("|")
            if len(values) != len(fields):
                raise SlurmOutputError(
                    f"sacctmgr show {what}: {len(values)} fields where {len(fields)} are due: {line!r}"
                )
            yield dict(zip(fields, values, strict=True))

    def _qos(self) -> Iterator[Qos]:
        fields = ("name", "priority", "preempt", "gracetime", *LIMITS)
        for row in self._table("qos", fields):
            limits = {name: row[name] for name in LIMITS if UNSET.get(row[name], row[name])}
            preempt = frozenset(name for name in row["preempt"].split(",") if name)
            yield Qos(row["name"], row["priority"], preempt, row["gracetime"], limits)

    def _associations(self, cluster: str) -> Iterator[Association]:
        fields = ("account", "user", "partition", "qos")
        for row in self._table("assoc", fields, "tree", f"cluster={cluster}"):
            if not row["partition"]:
                qos = frozenset(name for name in row["qos"].split(",") if name)
                yield Association(row["account"].strip(), row["user"], qos)

    def _is_operator(self, slurm_user: str) -> bool:
        uid = os.geteuid()
        if uid == 0 or f"({uid})" in slurm_user:
            return True
        name = pwd.getpwuid(uid).pw_name
        rows = list(self._table("user", ("user", "adminlevel"), f"name={name}"))
        return any(row["adminlevel"].lower() in ADMIN for row in rows)

    def do(self, words: tuple[str, ...]) -> str:
        """One change by ``sacctmgr -i``. What is so already is no failure; a QOS that jobs use is told apart."""
        answer = self._runner.run("sacctmgr", "-i", *words)
        said = f"{answer.out}\n{answer.err}".strip()
        if answer.status == 0 or any(text in said for text in NOTHING_TO_DO):
            return said
        if any(text in said for text in IN_USE):
            raise SlurmSetupError(
                f"sacctmgr {' '.join(words)}: still in use by jobs; run setup remove again when they ended"
            )
        if "privilege" in said or "permission" in said.lower():
            raise SlurmPermissionError(
                f"sacctmgr {' '.join(words)}: this user may not change slurmdbd; run it as root, or as a user with "
                "AdminLevel=Administrator"
            )
        raise failure(("sacctmgr", *words), answer.err or answer.out, answer.status)


__all__ = ["SlurmAdmin", "Step"]
