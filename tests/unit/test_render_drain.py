"""`sbudget drain` for people and for programs."""

from __future__ import annotations

from pyslurm_budget.domain.outlook import Leaving, NodeOutlook
from pyslurm_budget.render import drain as pages
from pyslurm_budget.render.clock import Clock
from pyslurm_budget.render.table import Style, draw
from pyslurm_budget.service.outlook import MaintenancePlan
from tests.build import HOUR, NOW, node, running

CLOCK = Clock(NOW, "UTC")
RUN = Leaving(running(101), 4, NOW + HOUR, "contract")
NEVER = Leaving(running(102), 8, None, "unlimited")
FOUND = (
    NodeOutlook(node("n1", draining=True, reason_since=NOW - HOUR), (RUN,), NOW + HOUR),
    NodeOutlook(node("n2", draining=True, reason_since=NOW - HOUR), (), NOW),
    NodeOutlook(node("n3", up=False), (NEVER, RUN), None),
)


def test_a_line_a_node() -> None:
    assert draw(pages.COLUMNS, pages.lines(FOUND, CLOCK), Style()).splitlines() == [
        "Node  State     Runs  Empty at      Last run            Waiting for",
        "n1    draining     1  09:00         101 (blue, 4 GPUs)  its contract",
        "n2    drained      0  since 07:00",
        "n3    down         2  nobody knows  102 (blue, 8 GPUs)  it has no time limit",
    ]
    plain = draw(pages.COLUMNS, pages.lines(FOUND, CLOCK), Style(parsable=True)).splitlines()
    assert plain[1:] == [
        f"n1|draining|1|{NOW + HOUR}|101|contract",
        f"n2|drained|0|{NOW}||",
        "n3|down|2||102|unlimited",
    ]


def test_a_plan_says_what_to_do() -> None:
    plan = MaintenancePlan(FOUND, NOW + 10 * HOUR, NOW + 2 * HOUR, None, (NEVER,))
    said = pages.summary(plan, CLOCK, "n[1-3]")
    assert "must stand at 2027-01-15 10:00 UTC at the latest; 1 jobs would still run then" in said
    assert "nodes=n[1-3] users=root flags=MAINT,IGNORE_JOBS" in said
    late = MaintenancePlan(FOUND, NOW + HOUR, NOW - HOUR, NOW, ())
    assert "should stand now" in pages.summary(late, CLOCK, "")
    assert "nothing would still run then" in pages.summary(late, CLOCK, "")
    assert pages.plan_document(plan, NOW)["late"] == [
        {"job": "102", "user": "bob", "account": "blue", "at": None, "waits": "unlimited"}
    ]
    assert [line.split()[0] for line in draw(pages.LATE, pages.late_lines(plan, CLOCK), Style()).splitlines()][
        1:
    ] == ["102"]
