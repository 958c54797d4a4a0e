"""Starting Slurm's commands: the only place that starts processes.

Argument lists, never a shell; a closed standard input; an environment of which the meaning does not depend on the
caller's; output decoded with replacement, as names may hold any bytes. Every failure is raised as the class of
:mod:`pyslurm_budget.errors` that :mod:`pyslurm_budget.slurm.failures` finds in Slurm's words.
"""

from __future__ import annotations

import codecs
import os
import selectors
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from pyslurm_budget.errors import SlurmMissingError
from pyslurm_budget.slurm.failures import failure, missing, silence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_CHUNK = 1 << 16
_FOREIGN = ("SLURM_", "SACCT_", "SQUEUE_", "SINFO_", "SBATCH_", "SALLOC_", "SCONTROL_", "SPRIO_", "SREPORT_", "LC_")
# Epoch seconds, UTC where a command knows no epochs, untranslated messages, array expressions in full (else they are
# cut at 64 characters).
_OURS = {"TZ": "UTC", "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What one command said: its two outputs and its exit status."""

    out: str
    err: str
    status: int


class Runner:
    """Starts Slurm's commands against one cluster.

    ``slurm_conf`` is the cluster's configuration (``None``: as Slurm finds it, ``SLURM_CONF`` included), ``timeout``
    the seconds of silence after which a command is given up, ``prefix`` what is put before each command (``chroot``).
    """

    def __init__(
        self, slurm_conf: Path | str | None = None, timeout: float = 60.0, prefix: Sequence[str] = ()
    ) -> None:
        self._conf = None if slurm_conf is None else str(slurm_conf)
        self._timeout = timeout
        self._prefix = tuple(prefix)

    def environment(self, caller: Mapping[str, str]) -> dict[str, str]:
        """The environment for the commands, made from the caller's."""
        kept = {key: value for key, value in caller.items() if not key.startswith(_FOREIGN)}
        conf = self._conf or caller.get("SLURM_CONF")
        return kept | _OURS | ({"SLURM_CONF": conf} if conf else {})

    def run(self, *command: str, stdin: str | None = None) -> Answer:
        """Run a command to its end and return its answer, whatever its status.

        Raises SlurmMissingError if it cannot be started, and its daemon's error if it does not end in time.
        """
        with self._start(command, subprocess.PIPE, stdin is not None) as process:
            try:
                given = None if stdin is None else stdin.encode("utf-8", errors="replace")
                out, err = process.communicate(given, timeout=self._timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise silence(command, self._timeout) from None
            except BaseException:
                process.kill()
                raise
        return Answer(_text(out), _text(err), process.returncode)

    def read(self, *command: str, strict: bool = False) -> str:
        """Run a command and return its output; raises if it failed.

        ``strict`` also takes an ``error:`` on standard error for a failure: slurmdbd's clients of 22.05 may print one
        and end with status 0, while scontrol of 24.11 prints messages of the submit plugin in that way.
        """
        answer = self.run(*command)
        if answer.status != 0 or (strict and "error:" in answer.err):
            raise failure(command, answer.err or answer.out, answer.status)
        return answer.out

    def lines(self, *command: str) -> Iterator[str]:
        """Run a command and yield its lines as they come, without their newline.

        Strict (see :meth:`read`): raises after the last line if the command failed, so a consumer has the whole
        answer only if the iteration ends without an error. A consumer that stops early ends the command.
        """
        with self.started(*command) as lines:
            yield from lines

    @contextmanager
    def started(self, *command: str) -> Iterator[Iterator[str]]:
        """A command that works while its lines (see :meth:`lines`) are not read yet; it is ended with the block."""
        with tempfile.TemporaryFile() as err, self._start(command, err, False) as process:
            try:
                yield self._answer(command, process, err)
            finally:
                process.kill()
                process.wait()

    def _answer(self, command: Sequence[str], process: subprocess.Popen[bytes], err: IO[bytes]) -> Iterator[str]:
        """The lines of a started process; raises after the last one if it failed."""
        yield from self._decoded(command, process)
        try:
            process.wait(self._timeout)
        except subprocess.TimeoutExpired:
            raise silence(command, self._timeout) from None
        err.seek(0)
        said = _text(err.read())
        if process.returncode != 0 or "error:" in said:
            raise failure(command, said, process.returncode)

    def _start(self, command: Sequence[str], err: int | IO[bytes], feed: bool) -> subprocess.Popen[bytes]:
        """Start the process; raises SlurmMissingError if there is no such program."""
        try:
            return subprocess.Popen(
                [*self._prefix, *command],
                stdin=subprocess.PIPE if feed else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=err,
                env=self.environment(os.environ),
            )
        except OSError as error:
            raise self._unstartable(command, error) from error

    def _unstartable(self, command: Sequence[str], error: OSError) -> SlurmMissingError:
        """The sentence for a program that cannot be started."""
        return missing((*self._prefix, *command)[0], error.strerror or str(error))

    def _decoded(self, command: Sequence[str], process: subprocess.Popen[bytes]) -> Iterator[str]:
        """Lines of the process's output; raises its daemon's error after a silence of ``timeout`` seconds."""
        assert process.stdout is not None
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        rest = ""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                if not selector.select(self._timeout):
                    raise silence(command, self._timeout)
                chunk = os.read(process.stdout.fileno(), _CHUNK)
                *whole, rest = (rest + decoder.decode(chunk, final=not chunk)).split("\n")
                yield from whole
                if not chunk:
                    break
        if rest:
            yield rest


def _text(raw: bytes) -> str:
    """Decode output; a name that is not UTF-8 must not take the other records with it."""
    return raw.decode("utf-8", errors="replace")
