"""Published files are whole, readable by all, and never left half-written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pyslurm_budget.errors import PublishError
from pyslurm_budget.service import publish
from pyslurm_budget.service.publish import FilePublisher

if TYPE_CHECKING:
    from pathlib import Path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def publisher(tmp_path: Path) -> FilePublisher:
    return FilePublisher(tmp_path / "table", tmp_path / "state")


def test_replaces_both_files_and_leaves_nothing_else(tmp_path: Path, publisher: FilePublisher) -> None:
    publisher.publish("old", "old")
    publisher.publish("table é\n", "{}\n")
    assert (tmp_path / "table").read_bytes() == "table é\n".encode()
    assert (tmp_path / "state").read_text() == "{}\n"
    assert names(tmp_path) == ["state", "table"]


def test_all_may_read_them_whatever_the_umask(tmp_path: Path, publisher: FilePublisher) -> None:
    before = os.umask(0o077)
    try:
        publisher.publish("t", "s")
    finally:
        os.umask(before)
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in ("table", "state")} == {0o644}


@pytest.mark.parametrize("step", ["fsync", "fchmod"])
def test_a_failed_write_keeps_the_old_file_and_no_other(
    tmp_path: Path, publisher: FilePublisher, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    publisher.publish("old", "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(publish.os, step, full)
    with pytest.raises(PublishError, match=r"table cannot be written \(No space left on device\)"):
        publisher.publish("new", "new")
    assert (tmp_path / "table").read_text() == "old"
    assert names(tmp_path) == ["state", "table"]


def test_an_interrupt_leaves_no_temporary_file(
    tmp_path: Path, publisher: FilePublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(publish.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        publisher.publish("new", "new")
    assert names(tmp_path) == []


def test_a_missing_folder_is_named_and_not_made(tmp_path: Path) -> None:
    publisher = FilePublisher(tmp_path / "gone" / "table", tmp_path / "state")
    with pytest.raises(PublishError, match="gone/table cannot be written"):
        publisher.publish("t", "s")
    assert names(tmp_path) == []


def test_a_folder_in_the_place_of_the_file_is_an_error(tmp_path: Path, publisher: FilePublisher) -> None:
    (tmp_path / "table").mkdir()
    with pytest.raises(PublishError):
        publisher.publish("t", "s")
    assert names(tmp_path) == ["table"]


def test_text_that_is_no_unicode_is_refused_without_a_trace(tmp_path: Path, publisher: FilePublisher) -> None:
    with pytest.raises(PublishError, match=r"hold '\\ud800'"):
        publisher.publish("\ud800", "s")
    assert names(tmp_path) == []


def test_what_a_killed_writer_left_is_used_up(tmp_path: Path, publisher: FilePublisher) -> None:
    (tmp_path / ".table.new").write_text("half of a much longer tab")
    publisher.publish("t", "s")
    assert (tmp_path / "table").read_text() == "t"
    assert names(tmp_path) == ["state", "table"]


@pytest.mark.parametrize(("mode", "refused"), [(0o777, True), (0o703, True), (0o1777, False), (0o775, False)])
def test_nothing_is_published_where_everybody_may_replace_it(tmp_path: Path, mode: int, refused: bool) -> None:
    folder = tmp_path / "public"
    folder.mkdir()
    publisher = FilePublisher(folder / "table", folder / "state")
    publisher.publish("old", "old")
    folder.chmod(mode)
    if refused:
        with pytest.raises(PublishError, match=r"everybody may replace files in .*public"):
            publisher.publish("new", "new")
    else:
        publisher.publish("new", "new")
    assert (folder / "table").read_text() == ("old" if refused else "new")
