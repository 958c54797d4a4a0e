"""Single changes of the budgets from the command line, over a real ledger and a published state."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pyslurm_budget.domain.budget import Budget
from pyslurm_budget.domain.wording import MGPU_S_PER_GPU_H as GPU_H
from pyslurm_budget.ledger.store import SqlLedger
from pyslurm_budget.service.budgets import merge_history, read_budget_file
from pyslurm_budget.service.publish import FilePublisher
from pyslurm_budget.service.state import state_json
from tests.cli.calling import Said, sbudget
from tests.unit.test_render_show import STATE

TREE = """
[budgets.lab]
share = "100%"
[budgets.nlp]
parent = "lab"
share = "35%"
[budgets.bio]
parent = "lab"
share = { "*" = "10%", h100 = "1/3" }
"""


class Site:
    """A configuration, a ledger with a tree that is a week old, and a state in which nlp can lend 500 GPU-hours."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "sbudget.toml"
        (folder / "public").mkdir()
        self.folder = folder
        url = f"sqlite:///{folder}/ledger.sqlite"
        self.config.write_text(f'cluster = "alpha"\nstate_dir = "{folder}"\n[ledger]\nurl = "{url}"\n')
        self.ledger = SqlLedger(url, "alpha")
        begin = int(time.time()) - 8 * 86400
        self.ledger.save_budgets(merge_history((), read_budget_file(TREE, begin), begin), begin, "carol", "the first")
        self.publish(lendable=500 * GPU_H)

    def publish(self, lendable: int, age: int = 5) -> None:
        now = int(time.time())
        budgets = tuple(replace(b, budget="nlp", lendable=lendable) for b in STATE.budgets[:1])
        state = replace(STATE, as_of=now - age, stale_after=now - age + 3600, budgets=budgets, pools=STATE.pools[:1])
        FilePublisher(self.folder / "public/table", self.folder / "public/state.json").publish("", state_json(state))

    def budget(self, *words: object) -> Said:
        return sbudget("--config", self.config, "budget", *words)

    def shares(self, account: str) -> Budget:
        return next(b for b in self.ledger.budgets() if b.account == account)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


POOL = STATE.pools[0].name


def test_a_grant_is_in_the_ledger_and_in_the_history(site: Site) -> None:
    said = site.budget("grant", "BIO", "500h", "--until", "now+2days", "--why", "a deadline")
    assert said.status == 0, said.err
    assert f"500 GPU-h in {POOL} granted to bio until" in said.out
    (made,) = site.ledger.grants(0)
    assert (made.budget, made.pool, made.amount, made.lender) == ("bio", POOL, 500 * GPU_H, None)
    told = json.loads(site.budget("history", "--json").out)["changes"][-1]
    assert told["why"] == "a deadline"
    assert site.budget("grants", "-P", "-n", "--format=Budget,Amount,Left").out == "bio|500.000|500.000\n"


def test_a_dry_run_changes_nothing(site: Site) -> None:
    assert site.budget("grant", "bio", "500h", "--why", "x", "--dry-run").status == 0
    assert site.budget("loan", "nlp", "bio", "1h", "--until", "now+1days", "--why", "x", "--dry-run").status == 0
    assert site.budget("set", "bio", "20%", "--why", "x", "--dry-run").out == "~ bio: 10 % -> 20 % of lab\n"
    assert site.budget("borrow", "bio", "on", "--why", "x", "--dry-run").status == 0
    assert (
        site.budget("share-loan", "nlp", "bio", "5%", "--until", "now+1days", "--why", "x", "--dry-run").status == 0
    )
    assert site.ledger.grants(0) == () == site.ledger.share_loans()
    assert {why for _, _, why, _ in site.ledger.budget_changes()} == {"the first"}


def test_a_loan_above_what_is_left_is_refused_also_when_lent_in_parts(site: Site) -> None:
    words = ("--until", "now+1days", "--why", "agreed")
    assert site.budget("loan", "nlp", "bio", "400h", *words).status == 0
    said = site.budget("loan", "nlp", "bio", "101h", *words)
    assert (said.status, said.out) == (2, "")
    assert "nlp cannot lend 101 GPU-h" in said.err
    assert "it has 100 left" in said.err
    assert site.budget("loan", "nlp", "bio", "100h", *words).status == 0
    assert [g.amount // GPU_H for g in site.ledger.grants(0)] == [400, 100]
    assert site.budget("loan", "bio", "nlp", "1h", *words).status == 2


def test_no_loan_on_stale_numbers(site: Site) -> None:
    site.publish(500 * GPU_H, age=7200)
    assert site.budget("loan", "nlp", "bio", "1h", "--until", "now+1days", "--why", "x").status == 32


def test_a_recall_ends_it_now(site: Site) -> None:
    site.budget("loan", "nlp", "bio", "400h", "--until", "now+1days", "--why", "agreed")
    number = site.ledger.grants(0)[0].id
    said = site.budget("recall", number, "--why", "needed ourselves")
    assert said.status == 0, said.err
    assert (site.ledger.grants(0)[0].end or 0) <= time.time()
    assert site.budget("grants", "-P", "-n").out == ""
    assert site.budget("recall", number, "--why", "again").status == 2
    assert site.budget("recall", 4711, "--why", "x").status == 12


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["grant", "bioo", "5h", "--why", "x"], 12, "did you mean bio"),
        (["grant", "bio", "lots", "--why", "x"], 2, "write 500h"),
        (["grant", "bio", "0h", "--why", "x"], 2, "write 500h"),
        (["grant", "bio", "5h"], 2, "--why"),
        (["grant", "bio", "5h", "--until", "now-1days", "--why", "x"], 2, "is past"),
        (["grant", "bio", "5h", "--pool", "b200", "--why", "x"], 12, "no pool b200"),
        (["loan", "bio", "bio", "5h", "--until", "now+1days", "--why", "x"], 2, "to itself"),
        (["set", "bio", "-5%", "--why", "x"], 2, ""),
        (["set", "bio", "70%", "--why", "x"], 11, "at most 100 %"),
        (["share-loan", "nlp", "bio", "36%", "--until", "now+1days", "--why", "x"], 11, "nlp has 35 %"),
        (["share-loan", "lab", "bio", "5%", "--until", "now+1days", "--why", "x"], 11, "same parent"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_changes(site: Site, words: list[str], status: int, says: str) -> None:
    said = site.budget(*words)
    assert (said.status, said.out) == (status, "")
    assert says in said.err
    assert {why for _, _, why, _ in site.ledger.budget_changes()} == {"the first"}


def test_set_acts_from_now_on(site: Site) -> None:
    now = int(time.time())
    assert site.budget("set", "nlp", "40%", "--why", "agreed").status == 0
    budget = site.shares("nlp")
    assert str(budget.share_at(POOL, now - 60)) == "7/20"
    assert str(budget.share_at(POOL, now + 60)) == "2/5"


def test_set_retroactively_says_first_what_it_does(site: Site) -> None:
    said = site.budget("set", "nlp", "17.5%", "--retroactive", "--why", "agreed")
    had = STATE.budgets[0].allowance
    assert said.status == 0
    assert "allowance of the window" in said.out
    assert f"{had // 2 // GPU_H:,} GPU-h" in said.out
    assert "--yes makes it" in said.err
    now = int(time.time())
    assert str(site.shares("nlp").share_at(POOL, now)) == "7/20"
    assert site.budget("set", "nlp", "17.5%", "--retroactive", "--yes", "--why", "agreed").status == 0
    assert str(site.shares("nlp").share_at(POOL, now - 6 * 86400)) == "7/40"
    assert str(site.shares("nlp").share_at(POOL, now - 8 * 86400)) == "7/20"


def test_a_share_loan_is_told_and_binds(site: Site) -> None:
    assert site.budget("share-loan", "nlp", "bio", "5%", "--until", "now+1days", "--why", "a week").status == 0
    (loan,) = site.ledger.share_loans()
    now = int(time.time()) + 1
    assert [loan.moves(name, POOL, now) for name in ("nlp", "bio", "lab")] == [-loan.share, loan.share, 0]
    assert "nlp lends bio 5 % of their parent until" in site.budget("tree").out
    assert site.budget("set", "nlp", "4%", "--why", "x").status == 11
    assert "a week" in site.budget("history").out


def test_borrow_is_told_in_the_tree(site: Site) -> None:
    assert site.budget("borrow", "bio", "on", "--why", "idle nights").out == "~ bio: borrows\n"
    assert site.shares("bio").borrow
    assert ", borrows" in site.budget("tree").out
    assert site.budget("borrow", "bio", "off", "--why", "x").status == 0
    assert not site.shares("bio").borrow


def test_an_exported_tree_applied_again_changes_nothing(site: Site) -> None:
    site.budget("borrow", "bio", "on", "--why", "x")
    text = site.budget("export").out
    again = merge_history(site.ledger.budgets(), read_budget_file(text, 1), int(time.time()))
    assert {b.account: b for b in again} == {b.account: b for b in site.ledger.budgets()}
