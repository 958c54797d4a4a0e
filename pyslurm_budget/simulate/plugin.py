"""The submit plugin of the simulated cluster: what ``slurm_conf/job_submit.lua`` does with the published table.

It decides by :mod:`pyslurm_budget.domain.submit`, which a test holds equal to the Lua. Like the Lua it reads the text
at every submission, parses it again only when it changed, and goes on without it where it cannot be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyslurm_budget.domain.carry import Carry
from pyslurm_budget.domain.submit import Decision, Outcome, SubmitRequest, decide, without_table
from pyslurm_budget.domain.table import parse
from pyslurm_budget.errors import SlurmRefusedError
from pyslurm_budget.simulate.shapes import SubmitDecision

if TYPE_CHECKING:
    from pyslurm_budget.domain.table import DecisionTable
    from pyslurm_budget.simulate.shapes import ClusterSpec, SubmitSpec


class Published:
    """The two published texts, in memory; ``None`` before the first cycle. A ``Publisher``."""

    def __init__(self) -> None:
        """Nothing is published yet."""
        self.table: str | None = None
        self.state: str | None = None

    def publish(self, table: str, state: str) -> None:
        """Replace both."""
        self.table, self.state = table, state


class SubmitPlugin:
    """A ``SubmitHook``. ``said`` is what the last submitter was told, ``decision`` what was decided for him."""

    def __init__(self, spec: ClusterSpec, published: Published) -> None:
        """``spec`` knows the default QOS of the associations."""
        self._defaults = {a.name: a.default_qos for a in spec.accounts}
        self._published = published
        self._text: str | None = None
        self._table: DecisionTable | None = None
        self._last: DecisionTable | None = None
        self._carry = Carry()
        self.decision: Decision | None = None

    @property
    def said(self) -> str:
        """The message to the last submitter, empty for none."""
        return "" if self.decision is None else self.decision.message

    def __call__(self, spec: SubmitSpec, now: int) -> SubmitDecision:
        """Decide; raises SlurmRefusedError with the message for what must not come in."""
        table = self._current(now)
        request = self._request(spec)
        if table is None:
            self.decision = without_table(self._last, request)
        else:
            self.decision = decide(table, request, now=now, carry=self._carry)
            self._carry.add(request, self.decision, now)
        if self.decision.outcome is Outcome.REFUSED:
            raise SlurmRefusedError(self.decision.message)
        return SubmitDecision(self.decision.qos, self.decision.site_factor or 0, self.decision.marker or "")

    def _current(self, now: int) -> DecisionTable | None:
        """The table of the published text, ``None`` if there is none or it cannot be used."""
        text = self._published.table
        if text != self._text:
            self._text = text
            try:
                self._table = None if text is None else parse(text)
            except ValueError:
                self._table = None
            if self._table is not None:
                self._last = self._table
                self._carry.renew(self._table.snapshot, now)
        return self._table

    def _request(self, spec: SubmitSpec) -> SubmitRequest:
        per_node = spec.gpus_per_node
        return SubmitRequest(
            account=spec.account,
            user=spec.user,
            qos=spec.qos,
            default_qos=self._defaults.get(spec.account),
            partition=spec.partition,
            gpus=spec.gpus if per_node is None else per_node * spec.nodes,
            gpu_type=spec.gpu_type,
            nodes=spec.nodes,
            cpus=spec.cpus or 0,
            memory_mb=spec.memory_mb,
            time_limit=spec.time_limit,
            array_tasks=len(set(spec.array)) or None,
            requeue=None if spec.requeue else False,
            interactive=spec.interactive,
            name=spec.name,
            comment=spec.comment,
            reservation=spec.reservation,
        )
