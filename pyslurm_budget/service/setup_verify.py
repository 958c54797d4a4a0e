"""Whether slurmctld itself lets people have the QOS that slurmdbd says they may.

What slurmctld knows it was told by slurmdbd, and it can have missed it: slurmdbd cannot reach it, or is one of those
(23.11.0 to 25.05.0) that tell it of an account's list only one level down. The plugin would then give jobs a QOS that
is refused, and their submission with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyslurm_budget.errors import SlurmSetupError
from pyslurm_budget.service.setup import in_force
from pyslurm_budget.service.setup_point import Point, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyslurm_budget.domain.policy import ClassMap
    from pyslurm_budget.service.setup import Association, SlurmFacts

    # account, user, QOS, partition; None where slurmctld says neither
    Accepts = Callable[[str, str, str, str], bool | None]

MOST_ASKED = 3  # users of one list, where the first are not known to this host
TRIES = 10
BETWEEN = 1.0  # seconds
MEND = "restart slurmctld, then run sbudget setup apply again"


@dataclass(frozen=True, slots=True)
class Question:
    """May one of these users have the QOS? They share one list; the partition takes the QOS."""

    account: str
    users: tuple[str, ...]
    qos: str
    partition: str


def questions(facts: SlurmFacts, classes: ClassMap) -> Iterator[Question]:
    """Each list by which somebody lives, asked for the managed QOS in it and for their twins."""
    lists = in_force(facts.associations)
    for (account, _), users in _sharing(facts.associations).items():
        have = lists[(account, users[0], "")]
        managed = [name for name in classes.twins if name in have]
        for qos in dict.fromkeys([*managed, *(classes.twins[name] for name in managed)]):
            if (partition := _taker(facts, qos)) is not None:
                yield Question(account, tuple(users[:MOST_ASKED]), qos, partition)


def _taker(facts: SlurmFacts, qos: str) -> str | None:
    return next((name for name, rule in facts.partitions.items() if rule.takes(qos)), None)


def _sharing(associations: Sequence[Association]) -> dict[tuple[str, str], list[str]]:
    """Users by the association whose list is theirs: their account's, or their own. Left out is who has another list
    for some partition."""
    other = {(a.account, a.user) for a in associations if a.partition}
    found: dict[tuple[str, str], list[str]] = {}
    for a in associations:
        if a.user and (a.account, a.user) not in other:
            found.setdefault((a.account, a.user if a.own else ""), []).append(a.user)
    return found


def refusals(asked: Sequence[Question], accepts: Accepts) -> list[tuple[Question, str]]:
    """The questions that slurmctld answers with no, each with the user who would be refused."""
    found = []
    for question in asked:
        for user in question.users:
            answer = accepts(question.account, user, question.qos, question.partition)
            if answer is False:
                found.append((question, user))
            if answer is not None:
                break
    return found


def wait_for(facts: SlurmFacts, classes: ClassMap, accepts: Accepts, pause: Callable[[float], None]) -> None:
    """Wait until slurmctld accepts what slurmdbd says; raises SlurmSetupError if it does not in time."""
    left = refusals(list(questions(facts, classes)), accepts)
    for _ in range(TRIES - 1):
        if not left:
            return
        pause(BETWEEN)
        left = refusals([question for question, _ in left], accepts)
    if left:
        raise SlurmSetupError(f"{_words(left)}; {MEND}")


def point(facts: SlurmFacts, classes: ClassMap, accepts: Accepts, *, may_ask: bool) -> Point:
    """The point of the check, asked once."""
    if not may_ask:
        says = "only root may ask slurmctld whether it accepts the QOS that slurmdbd allows"
        return Point("lists in slurmctld", Verdict.ADVISED, says, "run sbudget setup check as root")
    left = refusals(list(questions(facts, classes)), accepts)
    if left:
        return Point("lists in slurmctld", Verdict.MUST, _words(left), MEND, blocks=False)
    return Point("lists in slurmctld", Verdict.OK, "slurmctld accepts the QOS that slurmdbd allows")


def _words(left: Sequence[tuple[Question, str]]) -> str:
    question, user = left[0]
    more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
    return (
        f"slurmctld refuses QOS {question.qos} to {user} in account {question.account}{more}, though slurmdbd has it "
        "in the list"
    )
