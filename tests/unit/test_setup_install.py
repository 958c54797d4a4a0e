"""The plugin's file and the folders: whole or not at all, and the site's own given back byte for byte."""

from __future__ import annotations

import os
import shutil
import stat
import time
from pathlib import Path

import pytest

from pyslurm_budget.errors import SlurmSetupError
from pyslurm_budget.service.setup_point import Verdict
from pyslurm_budget.slurm import install, rehearsal
from pyslurm_budget.slurm.folders import make_folders, missing_folders, table_point
from pyslurm_budget.slurm.install import LETS_THROUGH, PluginFile, PluginState, plugin_point, plugin_text
from pyslurm_budget.slurm.run import Runner

OWN = b"-- r\xe8gles du site\nfunction slurm_job_submit(j, p, u)\n   j.comment = 'x'\n   return slurm.SUCCESS\nend\n"
EMPTY = b"-- nothing\nfunction slurm_job_submit(a, b, c)\n  return slurm.SUCCESS\nend\n"
CALLS = (
    b'SBUDGET_AS_MODULE = true; dofile("/etc/slurm/sbudget_submit.lua")\nfunction slurm_job_submit(j, p, u)\n'
    b"local rc = sbudget_job_submit(j, p, u); if rc ~= slurm.SUCCESS then return rc end\nreturn slurm.SUCCESS\nend\n"
)


@pytest.fixture
def plugin(tmp_path: Path) -> PluginFile:
    (tmp_path / "etc").mkdir()
    return PluginFile(tmp_path / "etc" / "slurm.conf", tmp_path / "public" / "table", tmp_path / "state", Runner())


def test_the_plugin_reads_the_table_of_the_configuration_and_is_lua(plugin: PluginFile, tmp_path: Path) -> None:
    said = plugin.install()
    text = plugin.path.read_text(encoding="utf-8")
    assert f'local TABLE_PATH = "{tmp_path}/public/table"\n' in text
    assert text.count("local TABLE_PATH = ") == 1
    assert ("not checked" in said) == (
        not any(shutil.which(name) for name in (*rehearsal.INTERPRETERS, *rehearsal.COMPILERS))
    )
    assert plugin.is_ready()
    assert list(plugin.path.parent.iterdir()) == [plugin.path]


@pytest.mark.parametrize("content", [EMPTY, LETS_THROUGH.encode(), b""])
def test_a_file_that_lets_everything_through_is_replaced_and_given_back(plugin: PluginFile, content: bytes) -> None:
    plugin.path.write_bytes(content)
    if content:
        assert plugin.state() is PluginState.EMPTY
        known = plugin.keep(None, replace=False)
        plugin.install()
        plugin.give_back(known, needed=True)
        assert plugin.path.read_bytes() == content
    else:
        assert plugin.state() is PluginState.FOREIGN, "an empty file is no plugin that slurmctld takes"


def test_a_plugin_of_the_site_is_left_alone_and_ours_stands_beside_it(plugin: PluginFile) -> None:
    plugin.path.write_bytes(OWN)
    known = plugin.keep(None, replace=False)
    with pytest.raises(SlurmSetupError) as raised:
        plugin.install()
    assert plugin.path.read_bytes() == OWN
    assert plugin.module.read_text(encoding="utf-8") == plugin_text(plugin._table)
    words = str(raised.value)
    assert f'SBUDGET_AS_MODULE = true; dofile("{plugin.module}")' in words
    assert "local rc = sbudget_job_submit(job_desc, part_list, submit_uid)" in words
    assert not plugin.is_ready()
    plugin.give_back(known, needed=True)
    assert (plugin.path.read_bytes(), plugin.module.exists()) == (OWN, False)


def test_a_plugin_of_the_site_that_calls_ours_is_ready_with_the_module_of_this_release(plugin: PluginFile) -> None:
    """It names our function: it is still the site's, and never overwritten or emptied."""
    plugin.path.write_bytes(CALLS)
    assert plugin.state() is PluginState.CALLS
    assert not plugin.is_ready()
    known = plugin.keep(None, replace=False)
    plugin.install()
    assert plugin.is_ready()
    assert plugin.path.read_bytes() == CALLS
    plugin.module.write_text("old", encoding="utf-8")
    assert not plugin.is_ready()
    with pytest.raises(SlurmSetupError, match="still calls"):
        plugin.give_back(known, needed=True)
    plugin.path.write_bytes(OWN)
    plugin.give_back(known, needed=True)
    assert (plugin.path.read_bytes(), plugin.module.exists()) == (OWN, False)


def test_ours_that_was_written_beside_goes_too_when_the_sites_own_was_replaced(plugin: PluginFile) -> None:
    plugin.path.write_bytes(OWN)
    known = plugin.keep(None, replace=False)
    with pytest.raises(SlurmSetupError):
        plugin.install()
    known = plugin.keep(known, replace=True)
    plugin.install(replace=True)
    plugin.give_back(known, needed=True)
    assert (plugin.path.read_bytes(), plugin.module.exists()) == (OWN, False)


def test_lines_in_comments_do_not_call_ours(plugin: PluginFile) -> None:
    plugin.path.write_bytes(b"-- dofile\n  -- sbudget_job_submit(j, p, u)\n" + OWN)
    assert plugin.state() is PluginState.FOREIGN


def test_replace_keeps_the_sites_own_and_gives_it_back_with_its_mode_and_owner(plugin: PluginFile) -> None:
    plugin.path.write_bytes(OWN)
    plugin.path.chmod(0o640)
    os.chown(plugin.path, os.getuid(), os.getgid())
    known = plugin.keep(None, replace=True)
    plugin.install(replace=True)
    assert plugin.is_ready()
    assert stat.S_IMODE(plugin.path.stat().st_mode) == 0o640
    again = plugin.keep(known, replace=True)
    assert again == known, "the second apply does not take ours for the site's"
    plugin.give_back(known, needed=True)
    assert plugin.path.read_bytes() == OWN
    assert stat.S_IMODE(plugin.path.stat().st_mode) == 0o640


def test_a_lost_record_finds_the_kept_file_again(plugin: PluginFile) -> None:
    plugin.path.write_bytes(OWN)
    known = plugin.keep(None, replace=True)
    plugin.install(replace=True)
    assert plugin.keep(None, replace=False) == known


def test_every_file_is_newer_than_what_slurmctld_can_have_loaded(plugin: PluginFile) -> None:
    plugin.path.write_bytes(EMPTY)
    os.utime(plugin.path, (1, 1))
    known = plugin.keep(None, replace=False)
    plugin.install()
    assert plugin.path.stat().st_mtime > time.time()
    plugin.give_back(known, needed=True)
    assert plugin.path.stat().st_mtime > time.time()


@pytest.mark.parametrize(("needed", "left"), [(True, LETS_THROUGH), (False, None)])
def test_without_a_file_before_slurmctld_can_still_start(plugin: PluginFile, needed: bool, left: str | None) -> None:
    known = plugin.keep(None, replace=False)
    plugin.install()
    plugin.give_back(known, needed=needed)
    assert (plugin.path.read_text() if plugin.path.exists() else None) == left


def test_what_the_site_put_there_since_stays(plugin: PluginFile) -> None:
    known = plugin.keep(None, replace=False)
    plugin.install()
    plugin.path.write_bytes(OWN)
    assert "left as it is" in plugin.give_back(known, needed=True)
    assert plugin.path.read_bytes() == OWN


@pytest.mark.parametrize("harm", ["gone", "other"])
def test_a_kept_file_that_is_lost_or_changed_is_a_failure_and_not_an_empty_plugin(
    plugin: PluginFile, harm: str
) -> None:
    plugin.path.write_bytes(OWN)
    known = plugin.keep(None, replace=True)
    plugin.install(replace=True)
    kept = Path(known.kept)
    if harm == "gone":
        kept.unlink()
    else:
        kept.write_bytes(b"x")
    with pytest.raises(SlurmSetupError, match="by hand"):
        plugin.give_back(known, needed=True)
    assert plugin.is_ready()


WRONG = [
    ("function (", "<name> expected|unexpected symbol|expected near"),
    ("x = nil + 1", "arithmetic"),
    ("function slurm_job_submit() return 0 end", "slurm_job_modify"),
    ("function slurm_job_submit() end function slurm_job_modify() return 0 end", "a submission got no number back"),
    ("function slurm_job_submit() return 0 end function slurm_job_modify() end", "a change got no number back"),
    (
        "function slurm_job_submit() slurm.log_error('%s; the job is left as it is', 'boom') return 0 end",
        "boom; the job is left as it is",
    ),
]


@pytest.mark.parametrize(("text", "fault"), WRONG)
def test_a_script_that_fails_is_not_installed(
    plugin: PluginFile, monkeypatch: pytest.MonkeyPatch, text: str, fault: str
) -> None:
    if not any(shutil.which(name) for name in rehearsal.INTERPRETERS):
        assert "CI" not in os.environ, "scripts/test installs lua"
        pytest.skip("no lua on this machine")
    plugin.path.write_bytes(EMPTY)
    monkeypatch.setattr(install, "plugin_text", lambda _table: text)
    with pytest.raises(SlurmSetupError, match=f"the plugin was not installed: lua(?s:.)*({fault})"):
        plugin.install()
    assert plugin.path.read_bytes() == EMPTY


def test_where_there_is_only_a_compiler_it_says_that_nothing_was_tried(
    plugin: PluginFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "INTERPRETERS", ())
    if not any(shutil.which(name) for name in rehearsal.COMPILERS):
        pytest.skip("no luac on this machine")
    assert "compiled, not tried" in plugin.install()
    monkeypatch.setattr(install, "plugin_text", lambda _table: "function (")
    with pytest.raises(SlurmSetupError, match="the plugin was not installed: luac"):
        plugin.install()


def test_without_a_lua_it_says_that_nothing_was_checked(plugin: PluginFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "not checked" in plugin.install()


@pytest.mark.parametrize("path", ['/a"b', "/a\\b", "/a\nb"])
def test_a_table_path_that_lua_would_read_otherwise_is_refused(path: str) -> None:
    with pytest.raises(SlurmSetupError, match="choose a plain path"):
        plugin_text(Path(path))


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    plugin = PluginFile(tmp_path / "none" / "slurm.conf", tmp_path / "table", tmp_path, Runner())
    with pytest.raises(SlurmSetupError, match=r"none/job_submit.lua cannot be written: No such file"):
        plugin.install()


def test_the_point_of_the_file(plugin: PluginFile) -> None:
    assert plugin_point(plugin).verdict is Verdict.MUST
    assert plugin_point(plugin).says == f"{plugin.path} is missing"
    plugin.install()
    assert plugin_point(plugin).verdict is Verdict.OK
    plugin.path.write_text(plugin.path.read_text() + "-- x\n")
    assert "another release" in plugin_point(plugin).says


def test_the_table_must_be_readable_by_slurmuser(tmp_path: Path) -> None:
    table = tmp_path / "public" / "table"
    stranger = 64_999
    assert table_point(table, "slurm", stranger).line == "sbudget setup apply"
    assert make_folders(tmp_path / "state", table) == 2
    closed = [p for p in (*reversed(table.parent.parents), table.parent) if not p.stat().st_mode & 0o001]
    assert not [p for p in closed if p.is_relative_to(tmp_path / "public")], "made open to all"
    for path in closed:  # pytest's own folders are closed to others
        found = table_point(table, "slurm", stranger)
        assert (found.verdict, found.line) == (Verdict.MUST, f"chmod a+x {path}")
        break
    assert table_point(table, "root", 0).verdict is Verdict.OK
    own = table_point(table, "me", table.parent.stat().st_uid)
    assert own.verdict is Verdict.OK


def test_a_closed_table_in_an_open_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "table"
    table.touch(0o600)
    real = Path.stat

    def opened(self: Path, **_: bool) -> os.stat_result:
        found = real(self)
        return found if self == table else os.stat_result((found.st_mode | 0o055, *found[1:]))

    monkeypatch.setattr(Path, "stat", opened)
    assert table_point(table, "slurm", 64_999).line == f"chmod a+r {table}"


def test_folders_are_open_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        public = tmp_path / "a" / "b"
        assert make_folders(tmp_path / "a" / "state", public / "table", public / "json") == 2
    finally:
        os.umask(before)
    for name in ("a", "a/state", "a/b"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o755
    assert missing_folders(tmp_path / "a" / "state", tmp_path / "a" / "b" / "table") == []
