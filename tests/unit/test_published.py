"""The file of the decision table, as a monitor looks at it: each fault is found, and only it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyslurm_budget.domain.table import render
from pyslurm_budget.service.publish import FilePublisher
from pyslurm_budget.service.published import fault_of
from tests.unit.tables import TABLE

TEXT = render(TABLE)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    folder = tmp_path / "public"
    folder.mkdir(mode=0o755)
    FilePublisher(folder / "table", folder / "state.json").publish(TEXT, "{}")
    return folder / "table"


def told(table: Path) -> str:
    fault = fault_of(table, table.with_name("state.json"))
    assert fault is not None
    return fault


def test_what_we_publish_is_good(table: Path) -> None:
    assert fault_of(table, table.with_name("state.json")) is None
    table.with_name("state.json").unlink()
    assert fault_of(table, table.with_name("state.json")) is None


def test_no_file(table: Path) -> None:
    table.unlink()
    assert "cannot be read (No such file or directory)" in told(table)


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_others_may_write_the_file(table: Path, mode: int) -> None:
    table.chmod(mode)
    assert told(table) == f"others than its owner may write {table}: chmod go-w {table}"


def test_everybody_may_replace_the_file(table: Path) -> None:
    table.parent.chmod(0o757)
    assert told(table).endswith(f"chmod go-w {table.parent}")
    table.parent.chmod(0o1777)
    assert fault_of(table, table.with_name("state.json")) is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_somebody_else_put_a_table_there(table: Path) -> None:
    os.chown(table, 1234, -1)
    assert "belongs to user 1234, state.json to 0" in told(table)
    os.chown(table.with_name("state.json"), 1234, -1)
    assert fault_of(table, table.with_name("state.json")) is None, "a controller that is not root"


def test_a_table_cut_at_any_byte(table: Path) -> None:
    content = TEXT.encode()
    for length in {*range(0, len(content), 37), len(content) - 1}:
        table.write_bytes(content[:length])
        assert "cannot be used, the plugin falls back" in told(table)


def test_garbage(table: Path) -> None:
    table.write_bytes(b"\xff\xfe")
    assert "it is no UTF-8" in told(table)
