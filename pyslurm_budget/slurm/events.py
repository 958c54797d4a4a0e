"""Node events and reservations as slurmdbd has them: what nodes were while nobody looked, by sacctmgr.

Times are asked for as ``uts<epoch>`` and printed as epoch seconds, so that no time zone is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pyslurm_budget.domain.holding import Holding, NodeEvent
from pyslurm_budget.errors import SlurmOutputError
from pyslurm_budget.slurm.fields import epoch, listed, node_names, text_of, tres_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyslurm_budget.slurm.run import Runner

T = TypeVar("T")

# Present under these names in 22.05 to 26.05. Reason is free text (of administrators) and must stay last.
EVENT = ("NodeName", "Start", "End", "State", "Reason")
RESERVATION = ("ID", "Name", "Start", "End", "Flags", "Associations", "NodeNames", "TRES")
ASSOCIATION = ("ID", "Account", "User")
_FIRST_EPOCH = 1_000_000_000  # Slurm refuses `uts` with less


class SlurmHistory:
    """The past of one cluster's nodes."""

    def __init__(self, runner: Runner, cluster: str) -> None:
        """``cluster`` as slurmdbd knows it: it may know several."""
        self._runner = runner
        self._cluster = cluster

    def node_events(self, since: int, until: int) -> tuple[NodeEvent, ...]:
        """Every event that overlaps [since, until), down, drained or otherwise, open ones included. Raises unless the
        answer is complete."""
        return events_of(self._read("event", EVENT, "event=node", *_between(since, until)))

    def reservations(self, since: int, until: int) -> tuple[Holding, ...]:
        """Every reservation that overlaps [since, until), each piece between two of its changes by itself, also
        those that were deleted. Raises unless the answer is complete."""
        text = self._read("reservation", RESERVATION, *_between(since, until))
        if not text.strip():
            return ()
        return holdings_of(text, accounts_of(self._read("assoc", ASSOCIATION)))

    def _read(self, what: str, fields: tuple[str, ...], *words: str) -> str:
        given = (f"clusters={self._cluster}", *words, f"format={','.join(fields)}")
        return self._runner.read("sacctmgr", "-nP", "show", what, *given, strict=True)


def _between(since: int, until: int) -> tuple[str, str]:
    first = max(since, _FIRST_EPOCH)
    return f"start=uts{first}", f"end=uts{max(until, first + 1)}"


def events_of(text: str) -> tuple[NodeEvent, ...]:
    """Read sacctmgr's lines; a line break in a reason continues it. Raises SlurmOutputError."""
    found: list[NodeEvent] = []
    for line in text.splitlines():
        cells = line.split("|", len(EVENT) - 1)
        if len(cells) < len(EVENT) and found:
            last = found.pop()
            found.append(NodeEvent(last.node, last.start, last.end, last.state, f"{last.reason}\n{line}"))
        else:
            found.append(_built("event", _event, cells, len(EVENT)))
    return tuple(found)


def holdings_of(text: str, accounts: Mapping[str, str]) -> tuple[Holding, ...]:
    """Read sacctmgr's lines; ``accounts`` maps the id of each association of an account (not of a user) to its name.

    A reservation for users alone was bought for no account. Raises SlurmOutputError.
    """

    def build(cells: list[str]) -> Holding:
        return _holding(cells, accounts)

    return tuple(
        _built("reservation", build, line.split("|"), len(RESERVATION)) for line in text.splitlines() if line
    )


def accounts_of(text: str) -> dict[str, str]:
    """Accounts by the id of their own association."""
    rows = [line.split("|") for line in text.splitlines()]
    if not rows or any(len(cells) != len(ASSOCIATION) for cells in rows):
        raise SlurmOutputError(f"sacctmgr show assoc: cannot read {text[:160]!r}")
    return {key: account for key, account, user in rows if not user}


def _built(what: str, build: Callable[[list[str]], T], cells: list[str], due: int) -> T:
    line = "|".join(cells)[:200]
    if len(cells) != due:
        raise SlurmOutputError(f"sacctmgr show {what}: {len(cells)} fields where {due} are due: {line!r}")
    try:
        return build(cells)
    except ValueError as error:
        raise SlurmOutputError(f"sacctmgr show {what}: cannot read the line {line!r}: {error}") from error


def _event(cells: list[str]) -> NodeEvent:
    node, start, end, state, reason = cells
    begin = epoch(start)
    if not node or begin is None:
        raise ValueError("no node, or no start")
    return NodeEvent(node, begin, epoch(end), state, reason)


def _holding(cells: list[str], accounts: Mapping[str, str]) -> Holding:
    key, name, start, end, flags, assocs, nodes, tres = cells
    begin, upto = epoch(start), epoch(end)
    if begin is None or upto is None:
        raise ValueError("no start, or no end")
    held = tres_of(text_of(tres))
    return Holding(
        id=int(key),
        name=name,
        start=begin,
        end=max(upto, begin),
        accounts=tuple(_accounts(assocs, accounts)),
        flags=listed(flags),
        nodes=node_names(nodes),
        gpus=held.gpus or None,
        cpus=held.cpus or None,
    )


def _accounts(assocs: str, accounts: Mapping[str, str]) -> Iterator[str]:
    """Accounts that a reservation names, in its order, each once; ``-id`` is one that may not use it."""
    seen: set[str] = set()
    for part in listed(assocs):
        account = accounts.get(part)
        if account is not None and account not in seen:
            seen.add(account)
            yield account
