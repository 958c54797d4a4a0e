"""The submit plugin's file beside slurm.conf: checked first, put in whole, and the site's own given back.

slurmctld (22.05 to 26.05) reads ``job_submit.lua`` again at the next submission if the file is newer than what it
has loaded, in whole seconds; a script that it cannot read leaves the loaded one in force, and a missing one keeps
slurmctld from starting.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import time
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from pyslurm_budget.errors import SlurmSetupError
from pyslurm_budget.service.setup_point import Point, Verdict
from pyslurm_budget.service.setup_undo import PluginRecord
from pyslurm_budget.slurm.rehearsal import rehearse

if TYPE_CHECKING:
    from pyslurm_budget.slurm.run import Runner

NAME = "job_submit.lua"
MODULE = "sbudget_submit.lua"
PATH_LINE = re.compile(r'^local TABLE_PATH = ".*"$', re.MULTILINE)
OURS = re.compile(r"^function sbudget_job_submit\b", re.MULTILINE)
CALLED = re.compile(r"^(?!\s*--).*\bsbudget_job_submit\s*\(", re.MULTILINE)
BODY = re.compile(r"--.*$|\s+", re.MULTILINE)
_EMPTY_FUNCTION = r"functionslurm_job_(?:submit|modify)\([\w,]*\)return(?:slurm\.SUCCESS|0)end"
EMPTY = re.compile(rf"(?:{_EMPTY_FUNCTION})+(?:return(?:slurm\.SUCCESS|0))?")
LETS_THROUGH = """\
-- Lets everything through: slurmctld does not start without this file while JobSubmitPlugins names lua.
function slurm_job_submit(job_desc, part_list, submit_uid)
   return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   return slurm.SUCCESS
end
"""


class PluginState(StrEnum):
    """What the file is."""

    CURRENT = "is that of this release"
    OLD = "is of another release or reads another table"
    ABSENT = "is missing"
    EMPTY = "lets everything through"
    CALLS = "is the site's own and calls ours"
    FOREIGN = "is the site's own and does not call ours"


class PluginFile:
    """The file of one site. ``table`` is the decision table that it reads, ``state_dir`` where the site's own file is
    kept."""

    def __init__(self, slurm_conf: Path, table: Path, state_dir: Path, runner: Runner) -> None:
        """Nothing is touched yet; ``runner`` starts the Lua that tries the script."""
        self.path = slurm_conf.parent / NAME
        self.module = slurm_conf.parent / MODULE
        self._table = table
        self._kept = state_dir / f"{NAME}.before-sbudget"
        self._runner = runner

    def state(self) -> PluginState:
        """What is there now; raises SlurmSetupError if the file cannot be read."""
        text = _text(self.path)
        if text is None:
            return PluginState.ABSENT
        if OURS.search(text):
            return PluginState.CURRENT if text == plugin_text(self._table) else PluginState.OLD
        if EMPTY.fullmatch(BODY.sub("", text)):
            return PluginState.EMPTY
        return PluginState.CALLS if CALLED.search(text) and "dofile" in text else PluginState.FOREIGN

    def is_ready(self) -> bool:
        """Whether jobs are judged by the plugin of this release, directly or called by the site's own."""
        found = self.state()
        called = found is PluginState.CALLS and _text(self.module) == plugin_text(self._table)
        return called or found is PluginState.CURRENT

    def keep(self, known: PluginRecord | None, *, replace: bool) -> PluginRecord:
        """Keep a copy of the site's own file before it is replaced; returns what is to be written down.

        ``known`` is what was written down before: it stays in force while the file there is ours.
        """
        found = self.state()
        beside = self._beside(found, replace=replace)
        module = str(self.module) if beside else ""
        if beside or found in (PluginState.CURRENT, PluginState.OLD, PluginState.ABSENT):
            known = known or PluginRecord(str(self.path), self._kept_digest(), str(self._kept))
            return PluginRecord(known.path, known.digest, known.kept, module or known.module)
        content = self.path.read_bytes()
        try:
            self._kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.path, self._kept)
        except OSError as error:
            raise unwritable(self._kept, error) from error
        module = known.module if known else ""
        return PluginRecord(str(self.path), hashlib.sha256(content).hexdigest(), str(self._kept), module)

    def _kept_digest(self) -> str | None:
        """The digest of a copy that an earlier setup kept, ``None`` where there is none."""
        return hashlib.sha256(self._kept.read_bytes()).hexdigest() if self._kept.exists() else None

    def _beside(self, found: PluginState, *, replace: bool) -> bool:
        """Whether ours goes beside the site's own file instead of into its place."""
        return not replace and found in (PluginState.CALLS, PluginState.FOREIGN)

    def install(self, *, replace: bool = False) -> str:
        """Put ours in and say where and whether it was checked; beside a plugin of the site that does something,
        unless ``replace``. Raises SlurmSetupError with the lines that the site must add, after that."""
        found = self.state()
        text = plugin_text(self._table)
        note = rehearse(text, self._runner)
        target = self.module if self._beside(found, replace=replace) else self.path
        _put(target, text.encode())
        if target == self.module:
            _touch(self.path, int(self.path.stat().st_mtime))
            if found is PluginState.FOREIGN:
                raise SlurmSetupError(self.lines_to_add())
        return f"{target} written{note}"

    def would_do(self, *, replace: bool) -> str:
        """What :meth:`install` would write, for people."""
        found = self.state()
        if self._beside(found, replace=replace):
            return f"write {self.module}    # {self.path} {found}"
        return f"write {self.path}    # it {found}"

    def lines_to_add(self) -> str:
        """What a site with a plugin of its own adds to it."""
        return (
            f"{self.path} has rules of its own and was left as it is; {self.module} was written beside it: add these "
            "two lines to yours, or give --replace\n"
            f'  at its top:  SBUDGET_AS_MODULE = true; dofile("{self.module}")\n'
            "  first in slurm_job_submit:  local rc = sbudget_job_submit(job_desc, part_list, submit_uid); "
            "if rc ~= slurm.SUCCESS then return rc end\n"
            "and sbudget_job_modify(job_desc, job_rec, part_list, modify_uid) in slurm_job_modify in the same way"
        )

    def give_back(self, known: PluginRecord, *, needed: bool) -> str:
        """The site's own file, byte for byte, and say so; where there was none, none, or (``needed``: slurm.conf
        still names lua) one that lets everything through. A file that is not ours any more is left alone."""
        found = self.state()
        if known.module and found is PluginState.CALLS:
            raise SlurmSetupError(
                f"{self.path} still calls {known.module}; take the lines with sbudget_job_submit, sbudget_job_modify "
                "and dofile out of it, then run sbudget setup remove again"
            )
        if known.module:
            Path(known.module).unlink(missing_ok=True)
        if found not in (PluginState.CURRENT, PluginState.OLD):
            return f"{self.path} left as it is"
        if known.digest is None:
            return self._take_out(needed=needed)
        content = self._kept_content(known)
        _put(self.path, content)
        self._kept.unlink(missing_ok=True)
        return f"{self.path} as it was before"

    def _take_out(self, *, needed: bool) -> str:
        if needed:
            _put(self.path, LETS_THROUGH.encode())
            return f"{self.path} lets everything through; delete it when slurm.conf's JobSubmitPlugins names no lua"
        self.path.unlink(missing_ok=True)
        return f"{self.path} deleted"

    def _kept_content(self, known: PluginRecord) -> bytes:
        """The site's own file as it was kept; raises SlurmSetupError where that is not what was kept."""
        try:
            content = Path(known.kept).read_bytes()
        except OSError as error:
            raise SlurmSetupError(
                f"the site's own {NAME} cannot be given back: {known.kept} cannot be read ({error.strerror}); put it "
                f"back to {self.path} by hand, then run sbudget setup remove again"
            ) from error
        if hashlib.sha256(content).hexdigest() != known.digest:
            raise SlurmSetupError(
                f"{known.kept} is not the {NAME} that was kept; put the right one back to {self.path} by hand, then "
                "run sbudget setup remove again"
            )
        return content


def plugin_point(plugin: PluginFile) -> Point:
    """The check's point about the file."""
    found = plugin.state()
    if plugin.is_ready():
        return Point("plugin file", Verdict.OK, f"{plugin.path} {found}")
    return Point("plugin file", Verdict.MUST, f"{plugin.path} {found}", "sbudget setup apply", blocks=False)


def plugin_text(table: Path) -> str:
    """Our plugin, reading the table at this path; raises SlurmSetupError for a path that Lua would read otherwise."""
    source = resources.files("pyslurm_budget").joinpath("slurm_conf", NAME).read_text(encoding="utf-8")
    if any(sign in str(table) for sign in '"\\\n') or len(PATH_LINE.findall(source)) != 1:
        raise SlurmSetupError(f"the plugin cannot be made to read a table at {str(table)!r}; choose a plain path")
    return PATH_LINE.sub(lambda _: f'local TABLE_PATH = "{table}"', source)


def _text(path: Path) -> str | None:
    """The file's text, ``None`` if there is none; raises SlurmSetupError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SlurmSetupError(f"{path} cannot be read: {error.strerror}; run setup as its owner") from error


def _put(path: Path, content: bytes) -> None:
    """Write beside and rename, with owner and mode of the file that was there."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        new.write_bytes(content)
        new.chmod(0o644)
        before = 0
        if path.exists():
            status = path.stat()
            shutil.copymode(path, new)
            os.chown(new, status.st_uid, status.st_gid)
            before = int(status.st_mtime)
        _touch(new, before)
        new.replace(path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        new.unlink(missing_ok=True)


def _touch(path: Path, before: int) -> None:
    """Make the file newer than any that slurmctld can have loaded: it compares whole seconds. ``before`` is the time
    of the file that was there, which may be ours of the same second, or one with a time in the future."""
    moment = max(int(time.time()), before) + 1
    os.utime(path, (moment, moment))


def unwritable(path: Path, error: OSError) -> SlurmSetupError:
    return SlurmSetupError(f"{path} cannot be written: {error.strerror}; run setup as root or as its owner")
