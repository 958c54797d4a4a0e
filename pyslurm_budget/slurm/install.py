"""The submit plugin's file beside slurm.conf: put in whole, checked first, and the site's own given back."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path

from pyslurm_budget.errors import SlurmSetupError

NAME = "job_submit.lua"
OURS = "sbudget_job_submit"
PATH_LINE = re.compile(r"^local TABLE_PATH = .*$", re.MULTILINE)
BODY = re.compile(r"--.*$|\s+", re.MULTILINE)
EMPTY = re.compile(
    r"functionslurm_job_(?:submit|modify)\([\w,]*\)return(?:slurm\.SUCCESS|0)end"
    r"functionslurm_job_(?:submit|modify)\([\w,]*\)return(?:slurm\.SUCCESS|0)end(?:return(?:slurm\.SUCCESS|0))?"
)


def plugin_text(table: Path) -> str:
    """Our plugin, reading the table at this path."""
    source = resources.files("pyslurm_budget").joinpath("slurm_conf", NAME).read_text(encoding="utf-8")
    if '"' in str(table) or "\\" in str(table) or not PATH_LINE.search(source):
        raise SlurmSetupError(f"the plugin cannot be made to read a table at {table}")
    return PATH_LINE.sub(lambda _: f'local TABLE_PATH = "{table}"', source, count=1)


class PluginFile:
    """The file of one site; ``state`` is our own folder, where the site's previous file is kept."""

    def __init__(self, slurm_conf: Path, table: Path, state: Path) -> None:
        """Nothing is touched yet."""
        self.path = slurm_conf.parent / NAME
        self._table = table
        self._kept = state / f"{NAME}.before-sbudget"

    def is_installed(self) -> bool:
        """Whether the file is ours, as this release would write it."""
        return self._text() == plugin_text(self._table)

    def foreign(self) -> bool:
        """Whether the site has a plugin of its own that does something."""
        text = self._text()
        return text is not None and OURS not in text and not EMPTY.fullmatch(BODY.sub("", text))

    def install(self, *, replace: bool = False) -> None:
        """Put ours in the place of a missing, empty or own one; refuses to replace what does something."""
        if self.foreign() and not replace:
            raise SlurmSetupError(
                f"{self.path} has rules of its own; keep them and call ours from it (two lines, see the top of "
                f"{NAME} in this package), or give --replace"
            )
        text = plugin_text(self._table)
        _checked(text)
        before = self._text()
        if before is not None and OURS not in before:
            self._kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.path, self._kept)
        self._put(text.encode())

    def remove(self) -> None:
        """Give the site's previous file back, byte for byte; without one an empty plugin, as slurmctld needs one."""
        text = self._text()
        if text is None or OURS not in text:
            return
        if self._kept.exists():
            self._put(self._kept.read_bytes())
            self._kept.unlink()
        else:
            empty = "function slurm_job_{}({})\n   return slurm.SUCCESS\nend\n"
            submit = empty.format("submit", "job_desc, part_list, uid")
            self._put((submit + empty.format("modify", "job_desc, job_rec, part_list, uid")).encode())

    def _text(self) -> str | None:
        try:
            return self.path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None

    def _put(self, content: bytes) -> None:
        """Write beside and rename. The new file's time is now: slurmctld loads a script only if it is newer."""
        new = self.path.with_name(f".{NAME}.new")
        try:
            new.write_bytes(content)
            if self.path.exists():
                shutil.copymode(self.path, new)
                status = self.path.stat()
                os.chown(new, status.st_uid, status.st_gid)
            else:
                new.chmod(0o644)
            new.replace(self.path)
        except OSError as error:
            raise SlurmSetupError(
                f"{self.path} cannot be written: {error.strerror}; run setup as its owner"
            ) from error
        finally:
            new.unlink(missing_ok=True)


def _checked(text: str) -> None:
    """Refuse a script that Lua cannot read: a broken one ends slurmctld at its next start."""
    luac = shutil.which("luac5.1") or shutil.which("luac") or shutil.which("luac5.4")
    if luac is None:
        return
    done = subprocess.run([luac, "-p", "-"], input=text.encode(), capture_output=True, timeout=30, check=False)
    if done.returncode:
        raise SlurmSetupError(f"the plugin is no Lua that this machine reads: {done.stderr.decode().strip()}")
