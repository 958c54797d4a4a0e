"""Reason codes and their sentences: the one place where a decision's numbers become words.

Each code has templates, richest first; the first whose numbers are all there is used. ``{name:unit}`` shows a
number in its unit: ``gpuh`` mGPU-s as GPU-hours, ``gpus`` a rate as GPUs, ``span`` seconds, ``time`` a moment,
``pct`` a whole percentage, nothing as it is. A code that is not known still says its name and its numbers, so that
a ledger written by another release stays readable.
"""

from __future__ import annotations

from string import Formatter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyslurm_budget.domain import wording

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyslurm_budget.domain.plan import Reason

TEMPLATES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        # admission (design 4.3)
        "admitted": ("backed: its contract of {price:gpuh} GPU-h fits the budget of {budget}", "backed"),
        "admitted-at-submit": ("backed: the submit plugin let it in", "backed"),
        "returning": ("backed again, first in its budget: its last run had to make way or lost its node",),
        "exempt": ("backed, and stopped by nobody until {until:time}: {by} protected it ({text})",),
        "not-admitted-headroom": (
            "spare: its contract needs {price:gpuh} GPU-h, {limit} has {left:gpuh} left",
            "spare: its contract does not fit the budget",
        ),
        "not-admitted-ceiling": (
            "spare: {limit} may have {left:gpus} more GPUs under contract at one time, this needs {price:gpus}",
            "spare: too many GPUs of its budget are under contract at one time",
        ),
        "no-budget": ("spare: account {account} has no budget", "spare: its account has no budget"),
        "declared-spare": ("spare, as it asked to be",),
        "moved-by-user": ("spare: its user moved it to a spare QOS",),
        "no-qos": (
            "its class stays: {user} in account {account} may not use QOS {qos}",
            "its class stays: its user may not use the QOS",
        ),
        "cannot-requeue-too-long": (
            "spare: it cannot be requeued, so its contract would be its time limit, which is above {cap:span}",
            "spare: it cannot be requeued, and its time limit is above the longest contract",
        ),
        "unreadable-contract": ("spare: its minimum runtime cannot be read: {text}",),
        "above-cap": (
            "spare: a contract of {contract:span} is above the longest one, {cap:span}",
            "spare: its contract is above the longest one",
        ),
        "not-eligible": ("not judged yet: Slurm could not start it now ({state})", "not judged yet"),
        "demoted-over-budget": (
            "spare: {budget} has used more than its budget allows in {pool}; the last admitted loses it first",
            "spare: its budget has used more than it allows; the last admitted loses it first",
        ),
        "array-ahead": (
            "spare for now: {ahead} tasks of an array are backed at a time",
            "spare for now: only some tasks of an array are backed at a time",
        ),
        # a job's life (why)
        "submitted": ("submitted to {qos}", "submitted"),
        "started-backed": (
            "started on {nodes}, protected until {until:time} (contract {contract:span}, {source})",
            "started on {nodes}, protected until {until:time}",
        ),
        "started-spare": ("started on {nodes} as spare: may be preempted at any time",),
        "started": ("started on {nodes}",),
        "contract-kept": ("contract kept; ran on, charged",),
        "contract-ended": ("ended by itself before its contract did",),
        "contract-broken": ("contract broken by {by}", "contract broken"),
        "ended": ("ended: {state}, {gpus} GPUs for {length:span} ({amount:gpuh} GPU-h)", "ended: {state}"),
        "never-started": ("ended without a start: {state}",),
        "not-by-us": ("stopped and put back into the queue, not by us: {state}",),
        "credited": (
            "{amount:gpuh} GPU-h credited to {budget}: {why} ({length:span})",
            "credited to its budget: a node failure ended it",
        ),
        "reversed": ("{amount:gpuh} GPU-h of {budget} booked back by {by}: {why}", "an entry was reversed"),
        "now-backed": ("now backed",),
        "now-spare": ("now spare",),
        "protected": ("protected until {until:time}; after that it may be requeued for a more deserving job",),
        "past-contract": ("past its contract since {until:time}: may be requeued for a more deserving job",),
        "spare-run": ("spare: may be preempted at any time; nothing is charged",),
        "is-exempt": (
            "stopped by nobody until {until:time}: {by} protected it ({text})",
            "an operator protected it: stopped by nobody",
        ),
        "protection-ended": ("{by} took its protection back",),
        "unmanaged": ("its QOS {qos} is not managed: no budget, no contract",),
        "waits-backed": ("backed: starts when Slurm finds {gpus} GPUs, protected {contract:span} from then on",),
        "waits-spare": ("as spare it starts when {gpus} GPUs are idle",),
        "not-judged": ("not judged yet: the next cycle decides",),
        # order (4.5)
        "order": ("place in the order of {pool}", "place in the order"),
        "run-started": ("lowest step of its class: a requeued job does not jump the queue",),
        # displacement (4.6)
        "displaced-for": (
            "gives way to {for} ({for_budget}, load {for_load:pct}): {budget} was at load {load:pct}; "
            "contract of {contract:span} kept since {since:time}",
            "gives way to {for} ({for_budget})",
            "gives way to a job of a budget that has used less of its share",
        ),
        "displaced-for-wide": (
            "gives way to {for} ({for_budget}), first in the order and waiting for several nodes; "
            "contract of {contract:span} kept since {since:time}",
            "gives way to {for}, first in the order and waiting for several nodes",
        ),
        "room-is-being-made": ("room is being made for it since {since:time}", "room is being made for it"),
        "backing-off": (
            "runs were stopped for it at {since:time} and it did not start: no other is before {until:time}",
            "runs were stopped for it and it did not start: no other is for a while",
        ),
        "claims": (
            "may take the place of up to {runs} runs past their contracts: Slurm picks those that make room",
            "may take the place of runs past their contracts",
        ),
        "stands-open": (
            "run of {user} stands open inside its contract, although it was shielded: nobody claims in this cycle",
            "nobody claims in this cycle: a run inside its contract stands open",
        ),
        "no-room": ("no set of runs past their contract would make it fit in {pool}", "no set of runs makes it fit"),
        "too-many-runs": (
            "nothing is stopped for it: {runs} runs would have to be, at most {most} are in an hour",
            "nothing is stopped for it: too many runs would have to be",
        ),
        "cannot-judge": ("nothing is stopped for it: only Slurm can judge {what}", "nothing is stopped for it"),
        "waits-for-slurm": (
            "it fits into idle and spare GPUs: Slurm is to start it (it says {reason})",
            "it fits into idle and spare GPUs: Slurm is to start it",
        ),
        # moving, and places that are kept for a job (4.6)
        "moved-for": (
            "moves to idle GPUs elsewhere so that {for} can have {needs} GPUs on {nodes} nodes; loses {lost:span} of "
            "work, and comes back with its class, first in its budget",
            "moves to idle GPUs elsewhere so that a larger job can start; comes back first in its budget",
        ),
        "moves-wasted": (
            "no run is moved before {until:time}: {wasted} moved within {within:span} did not start again in time",
            "no run is moved for a while: moved runs did not start again in time",
        ),
        "collected-for": (
            "gives way to {for}, which needs {nodes} nodes at one time: they were collected for it until all "
            "contracts there had ended; contract of {contract:span} kept since {since:time}",
            "gives way to {for}, which needs many nodes at one time",
        ),
        "window-opened": (
            "{nodes} is collected for it: when the last contract there ends, at {at:time}, it starts there",
            "nodes are collected for it",
        ),
        "window-waits": ("{nodes} is collected for it until {at:time}", "nodes are collected for it"),
        "window-not-free": (
            "{nodes} is kept for it, and something there can neither be stopped nor is over",
            "nodes are kept for it, and something there can neither be stopped nor is over",
        ),
        "window-nowhere": (
            "no {nodes} nodes can be collected for it: on too many something runs that has no end",
            "no nodes can be collected for it",
        ),
        "window-too-large": (
            "no nodes are collected for it: {nodes} nodes are more than the {part:pct} of a pool that may be",
            "no nodes are collected for it: it needs too many",
        ),
        "window-broken": (
            "the nodes collected for it are given back: {nodes} is out",
            "collected nodes are given back",
        ),
        "window-given-up": (
            "the nodes collected for it are given back, and none are collected for {budget} within a day: {why}",
            "the nodes collected for it are given back: {why}",
            "the nodes collected for it are given back",
        ),
        "place-for-moved": ("{nodes} is kept for it: runs there move elsewhere", "a place is kept for it"),
        "place-ready": ("{nodes} is free for it: it may start there", "the place that was kept for it is free"),
        "place-entered": ("{nodes} is kept for it: Slurm is to start it there", "a place is kept for it"),
        "place-taken": ("started in the place that was kept for it",),
        "place-not-needed": ("the place kept for it is given back: it found room elsewhere",),
        "place-gone": ("the place kept for it is given back: {why}", "the place kept for it is given back"),
        "place-wasted": (
            "the place kept for it is given back: it did not start there within {waited:span}",
            "the place kept for it is given back: it did not start there",
        ),
        # drain (4.7)
        "drain": (
            "makes way for the repair of {node} ({reason}); it comes back with its class, first in its budget",
            "makes way for the repair of {node}; it comes back with its class, first in its budget",
            "makes way for a repair; it comes back with its class, first in its budget",
        ),
        "maintenance": (
            "makes way for the maintenance {name} ({start:time}); it comes back with its class, first in its budget",
            "makes way for a maintenance; it comes back with its class, first in its budget",
        ),
        "drain-limit": (
            "nothing is requeued for drains in {pool}: {nodes} nodes drain at once, the limit is {limit}",
            "nothing is requeued for drains: too many nodes drain at once",
        ),
        # safety (4.8)
        "observe": ("observe: nothing is changed",),
        "advise": ("advise: only messages at submission, nothing is changed",),
        "not-applied": ("planned only: --apply was not given",),
        "kill-switch": ("nothing is changed while {path} exists", "nothing is changed: the kill switch is set"),
        "breaker": (
            "nothing is changed: the breaker is open ({why}); look into it, then: sbudget resume",
            "nothing is changed since {since:time}: the breaker opened; look into it, then: sbudget resume",
            "nothing is changed: the breaker is open; look into it, then: sbudget resume",
        ),
        "breaker-lost": ("the breaker opened: {jobs} requeued jobs were lost within {window:span}",),
        "breaker-drained": ("the breaker opened: Slurm drained {nodes} just after our requeues",),
        "breaker-requeued": (
            "the breaker opened: {gpus} of {running} running GPUs were requeued within {window:span}",
        ),
        "controller-restarted": (
            "nothing is planned: slurmctld started {ago:span} ago, its state may be settling for {quiet:span}",
            "nothing is planned: slurmctld has just started",
        ),
        "clock-skew": (
            "nothing is changed: this host's clock is {seconds:span} off slurmctld's",
            "nothing is changed: this host's clock differs from slurmctld's",
        ),
        "stale-data": (
            "nobody is moved or requeued: accounting is complete up to {as_of:time} only",
            "nobody is moved or requeued: the data are too old or incomplete",
        ),
        "requeue-cap": (
            "{refused} requeues were put off: at most {cycle} a cycle",
            "requeues were put off: their number in a cycle and an hour is limited",
        ),
        "before-switch-on": ("left alone: it ran already when budgets were switched on",),
        "lost": (
            "requeued, but not pending again after {after:span}: the job is lost",
            "requeued, but not pending again: the job is lost",
        ),
        "requeued-seen": ("requeued, and pending again",),
    }
)


class _Words(Formatter):
    """A formatter that knows the units of this module; a missing number raises KeyError."""

    def __init__(self, moment: Callable[[int], str]) -> None:
        self._units: dict[str, Callable[[int], str]] = {
            "gpuh": wording.gpu_hours,
            "gpus": wording.gpus,
            "span": wording.span,
            "time": moment,
            "pct": "{} %".format,
        }

    def format_field(self, value: Any, format_spec: str) -> str:
        """Show one number in its unit; a text where a number belongs is shown as it is."""
        if format_spec and isinstance(value, int):
            return self._units[format_spec](value)
        return str(value)


def sentence(reason: Reason, moment: Callable[[int], str] = wording.moment_utc) -> str:
    """The reason in words, without a full stop. ``moment`` shows a time; by default with its date, in UTC."""
    words = _Words(moment)
    numbers = _told(reason)
    for template in TEMPLATES.get(reason.code, ()):
        try:
            return words.vformat(template, (), numbers)
        except KeyError:
            continue
    told = ", ".join(f"{name}={value}" for name, value in sorted(reason.numbers.items()))
    return f"{reason.code} ({told})" if told else reason.code


def about(reason: Reason, moment: Callable[[int], str] = wording.moment_utc) -> str:
    """The sentence, led by the job that it is about where the numbers name one."""
    job = reason.numbers.get("job")
    return f"{job}: {sentence(reason, moment)}" if job else sentence(reason, moment)


def _told(reason: Reason) -> Mapping[str, int | str]:
    """The numbers, with an overdrawn limit told as such."""
    left = reason.numbers.get("left")
    if reason.code == "not-admitted-headroom" and isinstance(left, int) and left < 0:
        return {**reason.numbers, "left": "nothing"}
    return reason.numbers
