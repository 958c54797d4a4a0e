"""Archived months: exactly the runs, deleted only when nothing needs them, and usage that stays as it was."""

from __future__ import annotations

import hashlib
import json
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from pyslurm_budget.domain.model import RunKey
from pyslurm_budget.domain.plan import Reason
from pyslurm_budget.errors import ArchiveError, StaleDataError
from pyslurm_budget.ledger import tables
from pyslurm_budget.ledger.files import Folder
from pyslurm_budget.service.archive import Archive, Done, Names
from pyslurm_budget.service.ports import RunFacts, SyncState
from pyslurm_budget.service.zones import Zone
from tests.db import other
from tests.db.conftest import new_cluster
from tests.db.made import action, contract, run
from tests.db.strategies import NUMBERS, facts

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyslurm_budget.ledger.store import SqlLedger

quick = settings(
    phases=[Phase.generate],
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
BERLIN = Zone("Europe/Berlin")
DAY = 86400
NOW = 1_710_000_000  # 2024-03-09
OCTOBER, NOVEMBER, DECEMBER, JANUARY = (
    1_696_111_200,
    1_698_793_200,
    1_701_385_200,
    1_704_063_600,
)  # begins of months of 2023 in Berlin
KEYS = st.builds(RunKey, st.integers(1, 6), st.integers(1, 3) | NUMBERS)
# Ends at, and near, the ends of months; lengths of some days, so that there are not too many hours to count.
ENDS = st.builds(
    int.__add__, st.sampled_from([NOVEMBER, DECEMBER, JANUARY]), st.sampled_from([-9999, -1, 0, 1, 9999])
)
ENDED = st.builds(
    lambda r, end, length: replace(r, start=None if r.start is None else end - length, end=end),
    facts(KEYS),
    ENDS,
    st.sampled_from([0, 1, 3600, 10_000, 2 * DAY]),
)


def ended(job_id: int, end: int, **changes: Any) -> RunFacts:
    """A run of a bit more than two hours."""
    return run(job_id, start=end - 9000, end=end, **changes)


def archive(ledger: SqlLedger, folder: Path, names: Names | None = None) -> tuple[Archive, Folder]:
    files = Folder(folder, ledger._cluster, BERLIN.name)
    return Archive(ledger, files, BERLIN, names), files


def archive_all(ledger: SqlLedger, folder: Path, names: Names | None = None) -> list[Done]:
    work, files = archive(ledger, folder, names)
    with files.alone():
        return [work.keep(month, over=False) for month in work.months(NOW, None)]


def delete_all(ledger: SqlLedger, folder: Path, names: Names | None = None) -> None:
    work, _ = archive(ledger, folder, names)
    for done in archive_all(ledger, folder, names):
        work.delete(done)


def stored(ledger: SqlLedger, runs: list[RunFacts], *, as_of: int = NOW) -> dict[RunKey, RunFacts]:
    """Save runs, and return them as the ledger has them."""
    ledger.save_runs(runs, SyncState(as_of, as_of, True))
    return ledger.runs_of([r.key for r in runs])


def cells(ledger: SqlLedger) -> dict[tuple[Any, ...], tuple[int, ...]]:
    """Every cell of usage that is not zero, by all that it is kept by."""
    u, g = tables.usage_hour, tables.usage_group
    query = select(u, g).join(g, g.c.id == u.c.group_id).where(u.c.cluster == ledger._cluster)
    found = {}
    with ledger._read() as connection:
        for r in connection.execute(query).mappings():
            amounts = tuple(r[u.c[name]] for name in ("gpu_seconds", "charge", "gpus_at", "rate_at"))
            if any(amounts):
                key = [r[g.c[name]] for name in ("user", "account", "budget", "qos", "pool", "flavor", "charged_as")]
                found[(r[u.c.span], r[u.c.at], r[g.c.run_on], *key)] = amounts
    return found


def without_users(found: dict[tuple[Any, ...], tuple[int, ...]]) -> Counter[tuple[Any, ...]]:
    total: Counter[tuple[Any, ...]] = Counter()
    for key, amounts in found.items():
        for number, amount in enumerate(amounts):
            total[(*key[:3], *key[4:], number)] += amount
    return +total


@settings(quick, max_examples=15)
@given(data=st.data())
def test_files_read_back_by_pandas_are_exactly_the_runs(
    opened: Callable[[str], SqlLedger], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    ledger, folder = opened(new_cluster()), tmp_path_factory.mktemp("archive")
    known = stored(ledger, data.draw(st.lists(ENDED | facts(KEYS).map(lambda r: replace(r, end=None)), max_size=8)))
    done = archive_all(ledger, folder)
    read: dict[RunKey, dict[str, Any]] = {}
    for each in done:
        frame = pd.read_parquet(folder / f"runs-{each.month.name}.parquet")
        assert each.manifest["runs"] == len(frame) > 0
        for row in frame.astype(object).where(frame.notna(), None).to_dict("records"):
            month = pd.Timestamp(row["end"], unit="s", tz="UTC").tz_convert(ZoneInfo("Europe/Berlin"))
            assert month.strftime("%Y-%m") == each.month.name
            assert read.setdefault(RunKey(row["job_id"], row["submit"]), row) is row
    over = {key: r for key, r in known.items() if r.end is not None}
    assert read.keys() == over.keys()
    for key, r in over.items():
        row = read[key]
        assert row.pop("cluster") == ledger._cluster
        assert json.loads(row.pop("nodes")) == list(r.nodes)
        parts = json.loads(row.pop("parts") or "[]")
        assert parts == [[p.pool, p.flavor, p.gpus, p.rate] for p in r.parts]
        assert RunKey(row.pop("job_id"), row.pop("submit")) == key
        for name, value in row.items():
            assert getattr(r, name) == value, name
    before = {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.iterdir()}
    assert {d.state for d in archive_all(ledger, folder)} <= {"same"}
    assert {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.iterdir()} == before


def test_the_manifest_says_what_is_in_the_file(ledger: SqlLedger, tmp_path: Path) -> None:
    over = [run(1, start=NOVEMBER + 10, end=NOVEMBER + 110, gpus=3), run(2, start=None, end=NOVEMBER, gpus=9)]
    over += [run(3, start=NOVEMBER - 50, end=NOVEMBER, gpus=2), run(4, start=NOVEMBER, end=NOVEMBER + 9, gpus=None)]
    stored(ledger, [*over, run(5, start=NOVEMBER - 50, end=NOVEMBER - 1, gpus=2, user="u-0123456789")])
    first, second = archive_all(ledger, tmp_path)
    data = (tmp_path / "runs-2023-11.parquet").read_bytes()
    assert (
        json.loads((tmp_path / "runs-2023-11.json").read_text())
        == second.manifest
        == {
            "cluster": ledger._cluster,
            "month": "2023-11",
            "timezone": "Europe/Berlin",
            "begin": NOVEMBER,
            "end": DECEMBER,
            "runs": 4,
            "gpus_unknown": 1,
            "pseudonyms": 0,
            "gpu_seconds": 3 * 100 + 2 * 50,
            "file": "runs-2023-11.parquet",
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
    )
    assert (first.month.name, first.manifest["runs"], first.manifest["pseudonyms"]) == ("2023-10", 1, 1)
    (tmp_path / "runs-2023-11.json").unlink()
    assert archive_all(ledger, tmp_path)[1].state == "same"
    assert json.loads((tmp_path / "runs-2023-11.json").read_text()) == second.manifest


def test_a_month_is_closed_when_accounting_was_read_a_day_after_it(ledger: SqlLedger, tmp_path: Path) -> None:
    work, _ = archive(ledger, tmp_path)
    with pytest.raises(StaleDataError, match="no accounting"):
        work.months(NOW, None)
    stored(ledger, [ended(1, NOVEMBER), ended(2, NOVEMBER - 1), run(3)], as_of=DECEMBER + DAY - 1)
    assert [m.name for m in work.months(NOW, None)] == ["2023-10"]
    stored(ledger, [], as_of=DECEMBER + DAY)
    assert [(m.name, m.begin, m.end) for m in work.months(NOW, None)] == [
        ("2023-10", OCTOBER, NOVEMBER),
        ("2023-11", NOVEMBER, DECEMBER),
    ]
    assert [m.name for m in work.months(DECEMBER, None)] == ["2023-10"]  # our clock counts too
    assert [m.name for m in work.months(NOW, NOVEMBER)] == ["2023-10"]


def test_a_file_with_other_runs_is_never_written_over_by_itself(ledger: SqlLedger, tmp_path: Path) -> None:
    stored(ledger, [ended(1, NOVEMBER)])
    archive_all(ledger, tmp_path)
    before = (tmp_path / "runs-2023-11.parquet").read_bytes()
    stored(ledger, [ended(2, NOVEMBER + 1)])  # late
    work, files = archive(ledger, tmp_path)
    (done,) = archive_all(ledger, tmp_path)
    assert (done.state, done.manifest) == ("differs", {})
    assert (tmp_path / "runs-2023-11.parquet").read_bytes() == before
    with pytest.raises(ArchiveError, match="changed"):
        work.delete(done)
    assert len(ledger.runs_of([RunKey(1, 100), RunKey(2, 100)])) == 2
    assert work.keep(done.month, over=True).state == "replaced"
    assert archive_all(ledger, tmp_path)[0].state == "same"
    files.file(done.month).write_bytes(b"PAR1 no more")
    with pytest.raises(ArchiveError, match="cannot be read"):
        archive_all(ledger, tmp_path)


def test_two_archivers_and_folders_that_are_not_there(ledger: SqlLedger, tmp_path: Path) -> None:
    _, files = archive(ledger, tmp_path)
    with files.alone(), pytest.raises(ArchiveError, match="another"), archive(ledger, tmp_path)[1].alone():
        pass
    with files.alone():
        pass
    with pytest.raises(ArchiveError, match="nowhere"), archive(ledger, tmp_path / "nowhere")[1].alone():
        pass


@settings(quick, max_examples=15)
@given(data=st.data())
def test_usage_stays_when_runs_are_deleted_and_nobody_complains(
    opened: Callable[[str], SqlLedger], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Then: deleted runs that come again change nothing, corrections and late runs are counted, and all can be
    counted anew."""
    ledger, folder = opened(new_cluster()), tmp_path_factory.mktemp("archive")
    runs = data.draw(st.lists(ENDED, min_size=1, max_size=8, unique_by=lambda r: r.key))
    known = stored(ledger, runs)
    before = cells(ledger)
    work, _ = archive(ledger, folder)
    done = archive_all(ledger, folder)
    gone = data.draw(st.integers(1, len(done)))
    assert sum(work.delete(d).deleted or 0 for d in done[:gone]) == sum(d.manifest["runs"] for d in done[:gone])
    archived = done[gone - 1].month.end
    assert ledger.archived_until() == archived
    left = {key: r for key, r in known.items() if r.end is not None and r.end >= archived}
    assert ledger.runs_of(known) == left
    assert cells(ledger) == before
    assert ledger.verify_usage()[1] == ()
    stored(ledger, runs)
    assert (ledger.runs_of(known), cells(ledger)) == (left, before)
    for key, r in left.items():
        ledger.save_runs([replace(r, rate=r.rate + 1), replace(r, key=RunKey(99, key.submit), end=archived + DAY)])
    assert ledger.verify_usage()[1] == ()
    after = cells(ledger)
    ledger.rebuild_usage()
    assert cells(ledger) == after


@pytest.mark.parametrize("what", ["run", "contract", "action"])
def test_what_is_not_finished_keeps_the_months_since_it_began(ledger: SqlLedger, tmp_path: Path, what: str) -> None:
    stored(ledger, [ended(1, NOVEMBER - 1), ended(2, NOVEMBER), run(3, start=DECEMBER - 1, end=DECEMBER)])
    if what == "run":
        stored(ledger, [run(4, start=NOVEMBER)])
    elif what == "contract":
        ledger.save_contracts([contract(4, start=NOVEMBER)])
    else:
        ledger.write_intents(1, NOVEMBER, [action("4")])
    work, _ = archive(ledger, tmp_path)
    october, november, _ = archive_all(ledger, tmp_path)
    limit, why = work.limit(NOW, NOW)
    assert limit == NOVEMBER
    assert what in why
    assert work.delete(october).deleted == 1
    with pytest.raises(ArchiveError, match=f"{what}.*4, which is not finished"):
        work.delete(november)
    assert len(ledger.runs_of([RunKey(n, 100) for n in (1, 2, 3)])) == 2
    assert ledger.archived_until() == NOVEMBER


def test_nothing_inside_what_reports_or_budgets_need(ledger: SqlLedger, tmp_path: Path) -> None:
    work, _ = archive(ledger, tmp_path)
    assert work.limit(NOVEMBER, DECEMBER)[0] == NOVEMBER
    limit, why = work.limit(DECEMBER, NOVEMBER)
    assert (limit, "budgets" in why) == (NOVEMBER - DAY, True)  # a whole read goes back a day further


def test_the_key_is_made_once(ledger: SqlLedger, opened: Callable[[str], SqlLedger]) -> None:
    key = ledger.pseudonym_key()
    assert len(bytes.fromhex(key)) == 32
    assert ledger.pseudonym_key() == opened(ledger._cluster).pseudonym_key() == key
    assert opened(new_cluster()).pseudonym_key() != key


def test_files_have_pseudonyms_in_months_that_are_old(ledger: SqlLedger, tmp_path: Path) -> None:
    stored(ledger, [ended(1, NOVEMBER - 1), ended(2, NOVEMBER - 9, user="bob"), ended(3, NOVEMBER)])
    names = Names(ledger.pseudonym_key(), NOVEMBER)
    archive_all(ledger, tmp_path, names)
    old = pd.read_parquet(tmp_path / "runs-2023-10.parquet").set_index("job_id").user
    assert old.str.fullmatch("u-[0-9a-f]{10}").all()
    assert old[1] != old[2]
    assert list(pd.read_parquet(tmp_path / "runs-2023-11.parquet").user) == ["alice"]
    assert {r.user for r in ledger.runs_of([RunKey(n, 100) for n in (1, 2, 3)]).values()} == {"alice", "bob"}
    assert [d.state for d in archive_all(ledger, tmp_path, names)] == ["same", "same"]
    assert [d.state for d in archive_all(ledger, tmp_path)] == ["differs", "same"]
    ledger.pseudonymise(NOVEMBER)  # the ledger's own are the same
    assert [d.state for d in archive_all(ledger, tmp_path)] == ["same", "same"]


@settings(quick, max_examples=15)
@given(data=st.data())
def test_pseudonyms_in_the_ledger_change_names_and_no_sums(
    opened: Callable[[str], SqlLedger], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    cluster = new_cluster()
    ledger, standby = opened(cluster), opened(cluster)
    users = st.sampled_from(["alice", "Alice", "u-zzzzzzzzzz"])
    named = st.builds(lambda r, u: replace(r, user=u), ENDED, users)
    given_runs = data.draw(st.lists(named, min_size=1, max_size=8, unique_by=lambda r: r.key))
    known = stored(standby, given_runs)
    if data.draw(st.booleans()):
        work, _ = archive(ledger, folder := tmp_path_factory.mktemp("archive"))
        work.delete(archive_all(ledger, folder)[0])
    archived = ledger.archived_until() or 0
    before, when = cells(ledger), data.draw(st.sampled_from([NOVEMBER, DECEMBER, JANUARY, NOW]))
    ledger.pseudonymise(when)
    assert without_users(cells(ledger)) == without_users(before)
    assert ledger.verify_usage()[1] == ()
    old = {key for key, r in known.items() if r.end is not None and r.end < when}
    for key, r in ledger.runs_of(known).items():
        plain = r.user in {"alice", "Alice", "u-zzzzzzzzzz"}
        assert plain is (key not in old)
        assert replace(r, user=known[key].user) == known[key]
    young = {r.user for key, r in known.items() if key not in old}
    plain_before = {key[3] for key in cells(ledger) if key[1] < min(when, archived)} - young
    assert all(user.startswith("u-") and user != "u-zzzzzzzzzz" for user in plain_before)
    with ledger._read() as connection:
        g = tables.usage_group.c
        groups = set(connection.execute(select(g.user).where(g.cluster == cluster)).scalars())
    assert groups == {key[3] for key in cells(ledger)}  # no name stays behind
    after = cells(ledger)
    assert not any(ledger.pseudonymise(when).values())
    assert cells(ledger) == after
    ledger.save_runs(given_runs)  # read again from accounting: the pseudonyms stay
    assert not {r.user for key, r in ledger.runs_of(known).items() if key in old} & {"alice", "Alice"}
    standby.save_runs([run(50, start=NOVEMBER, end=NOW, user="alice"), run(51, start=NOVEMBER, end=NOW, user="eve")])
    assert standby.verify_usage()[1] == ()  # it knew groups that are gone


def test_a_process_that_knew_groups_which_are_gone(opened: Callable[[str], SqlLedger]) -> None:
    cluster = new_cluster()
    ledger, standby = opened(cluster), opened(cluster)
    stored(standby, [ended(1, NOVEMBER)])
    assert ledger.pseudonymise(DECEMBER)["usage_group"] == 1
    stored(standby, [ended(2, DECEMBER)])
    assert ledger.verify(NOW)[1] == ()


def test_contracts_and_actions_of_old_runs(ledger: SqlLedger) -> None:
    stored(ledger, [ended(1, NOVEMBER - 1), ended(2, NOVEMBER), run(3, start=5)])
    done = [contract(n, user="alice", outcome="kept") for n in (1, 2, 4)]
    ledger.save_contracts([*done, contract(3, user="alice"), contract(5, outcome="kept", protected_until=NOVEMBER)])
    reason = Reason("no-qos", {"account": "nlp", "user": "alice", "qos": "backed"})
    for at, state in ((1, "done"), (2, "intent"), (NOVEMBER, "done")):
        (intent,) = ledger.write_intents(1, at, [action("1", reason=reason)])
        ledger.move_intent(intent.id, state, "", at)
    found = ledger.pseudonymise(NOVEMBER)
    assert (found["run"], found["contract"], found["action"]) == (1, 2, 1)
    users = {c.key.job_id: c.user for c in ledger.contracts([RunKey(n, 100) for n in range(1, 6)])}
    name = ledger.runs_of([RunKey(1, 100)])[RunKey(1, 100)].user
    assert name != "alice"
    assert users == {1: name, 2: "alice", 3: "alice", 4: name, 5: "alice"}
    assert [i.action.reason.numbers["user"] for i in ledger.intents()] == [name, "alice", "alice"]


@pytest.mark.parametrize("step", ["temp", "manifest", "delete", "commit", "after"])
def test_killed_at_any_step_leaves_nothing_half(
    opened: Callable[[str], SqlLedger], database: str, tmp_path: Path, step: str
) -> None:
    cluster = new_cluster()
    ledger = opened(cluster)
    known = stored(ledger, [run(n, start=NOVEMBER, end=NOVEMBER + n) for n in range(1, 900)])
    before = cells(ledger)
    process = other.start(database, cluster, "archive", [str(tmp_path), step])
    process.communicate("go\n", timeout=120)
    assert process.returncode == -signal.SIGKILL
    files = {file.name for file in tmp_path.iterdir() if not file.name.startswith(".")}
    whole = {"runs-2023-11.parquet", "runs-2023-11.json"}
    assert files == {"temp": set(), "manifest": {"runs-2023-11.parquet"}}.get(step, whole)
    assert len(ledger.runs_of(known)) == (0 if step == "after" else len(known))
    assert ledger.archived_until() == (DECEMBER if step == "after" else None)
    assert (cells(ledger), ledger.verify_usage()[1]) == (before, ())
    delete_all(ledger, tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == whole
    assert len(pd.read_parquet(tmp_path / "runs-2023-11.parquet")) == len(known)
    assert (ledger.runs_of(known), cells(ledger)) == ({}, before)
