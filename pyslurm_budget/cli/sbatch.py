"""``sbatch-budget``: sbatch with ``--min-runtime`` and ``--spare``; everything else goes to sbatch as it is.

The contract travels as one token of the job's comment, beside whatever else stands there: on the command line, else
in the script's ``#SBATCH`` lines. Only sbatch's own options are looked at; what comes after the script belongs to it.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pyslurm_budget.domain.comment import declared_minimum
from pyslurm_budget.errors import SbudgetError, SlurmMissingError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAME = "sbatch-budget"
TOKEN = "min-runtime"  # noqa: S105 - a word of the comment, no secret
USAGE = f"""\
Usage: {NAME} [--min-runtime=TIME | --spare] [sbatch options] SCRIPT [ARGUMENTS]

  --min-runtime=TIME  The shortest run that is of use (such as 90m, 4h or 0-04:00): protected for so long if the
                      budget allows. Ask for the time to the first useful checkpoint; the job may run on after it.
  --spare             Ask for no protection: free, and may be preempted at any time.

All other options are sbatch's:
"""
# sbatch(1): options that take no value, or one only after "=". All others take the next word. (Abbreviated options
# count as taking one.)
# fmt: off
_FLAGS = frozenset((
    "consolidate-segments", "contiguous", "exclusive", "get-user-env", "help", "hold", "ignore-pbs",
    "immediate", "nice", "no-kill", "no-requeue", "oom-kill-step", "overcommit", "oversubscribe", "parsable",
    "propagate", "quiet", "reboot", "requeue", "resv-ports", "share", "spread-job", "stepmgr", "test-only",
    "usage", "use-min-nodes", "verbose", "version", "wait",
))
# fmt: on
_SHORT_FLAGS = frozenset("bhHIkOQsuvVW")
_PIECES = re.compile(r"([ \t\n\v\f\r,;]+)")
_OLD_TOKEN = re.compile(r"min[-_]runtime(?:[=:].*)?", re.ASCII | re.IGNORECASE | re.DOTALL)


@dataclass(slots=True)
class Call:
    """A command line taken apart: sbatch's options without comments, the comment, ours, and script with arguments."""

    options: list[str] = field(default_factory=list)
    comment: str | None = None
    minimum: str | None = None
    spare: bool = False
    wants_help: bool = False
    rest: list[str] = field(default_factory=list)


def take_apart(words: Sequence[str]) -> Call:
    """Sort the words of the command line; raises UsageError for an option of ours without its value."""
    call = Call()
    at = iter(words)
    for word in at:
        if word == "--" or not word.startswith("-") or word == "-":
            call.rest = [word, *at]
        elif word.startswith("--"):
            _long(call, word, at)
        else:
            _short(call, word, at)
    return call


def _long(call: Call, word: str, at: Iterator[str]) -> None:
    name, equals, value = word[2:].partition("=")
    if name == "spare" and not equals:
        call.spare = True
    elif name == TOKEN:
        call.minimum = value if equals else _value(at, f"--{TOKEN}")
    elif name == "comment":
        call.comment = value if equals else _value(at, "--comment")
    else:
        call.wants_help |= name == "help"
        call.options.append(word)
        if not equals and name not in _FLAGS:
            call.options.extend(_next(at))


def _short(call: Call, word: str, at: Iterator[str]) -> None:
    """One or more short options in a word; the first that takes a value takes the rest, or the next word."""
    call.options.append(word)
    for i, letter in enumerate(word[1:], 1):
        if letter not in _SHORT_FLAGS:
            if i == len(word) - 1:
                call.options.extend(_next(at))
            return
        call.wants_help |= letter == "h"


def _next(at: Iterator[str]) -> list[str]:
    word = next(at, None)
    return [] if word is None else [word]


def _value(at: Iterator[str], option: str) -> str:
    word = next(at, None)
    if word is None:
        raise UsageError(f"{option} needs a value")
    return word


def script_comment(lines: Sequence[str]) -> str | None:
    """The comment that the ``#SBATCH`` lines of a script set, the last one where there are several."""
    found = None
    for line in lines:
        if line.startswith("#SBATCH"):
            try:
                words = shlex.split(line.removeprefix("#SBATCH"), comments=True)
            except ValueError:
                continue
            inner = take_apart(words)
            found = inner.comment if inner.comment is not None else found
        elif line.strip() and not line.startswith("#"):
            break
    return found


def merged(comment: str, minimum: str) -> str:
    """The comment with our token in place of any older one; what else stands there stays as it is."""
    pieces = _PIECES.split(comment)
    kept = [word + gap for word, gap in zip(pieces[::2], [*pieces[1::2], ""], strict=True) if not _is_old(word)]
    rest = "".join(kept).rstrip(" \t\n,;")
    return f"{rest} {TOKEN}={minimum}".lstrip()


def _is_old(word: str) -> bool:
    return _OLD_TOKEN.fullmatch(word) is not None


def arguments(words: Sequence[str]) -> list[str]:
    """What sbatch is to be called with; raises UsageError for a contract that cannot be read."""
    call = take_apart(words)
    if call.spare and call.minimum is not None:
        raise UsageError(f"--spare and --{TOKEN} exclude each other")
    minimum = "0" if call.spare else call.minimum
    if minimum is None:
        return list(words)
    try:
        declared = declared_minimum(f"{TOKEN}={minimum}")
    except ValueError as wrong:
        raise UsageError(str(wrong)) from None
    if declared is None or re.search(r"[\s,;]", minimum):
        raise UsageError(f"{TOKEN}={minimum}: write the time without spaces, such as 4h")
    comment = call.comment if call.comment is not None else script_comment(_lines(call.rest)) or ""
    return [f"--comment={merged(comment, minimum)}", *call.options, *call.rest]


def _lines(rest: Sequence[str]) -> list[str]:
    """The script's lines; none where there is no script to read (sbatch itself says so, or reads its stdin)."""
    script = next((word for word in rest if word != "--"), None)
    if script is None:
        return []
    try:
        return Path(script).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def main(words: Sequence[str] | None = None) -> int:
    """Check and merge, then become sbatch. Returns only if that failed."""
    given = sys.argv[1:] if words is None else list(words)
    try:
        call = take_apart(given)
        if call.wants_help:
            click.echo(USAGE, nl=False)
            sys.stdout.flush()
        command = ["sbatch", *arguments(given)]
        try:
            os.execvp("sbatch", command)  # noqa: S606 - an argument list, no shell
        except FileNotFoundError:
            raise SlurmMissingError("sbatch is not installed here, or not in $PATH") from None
        except OSError as failure:
            raise SlurmMissingError(f"sbatch cannot be started ({failure.strerror})") from failure
    except SbudgetError as failure:
        click.echo(f"{NAME}: error: {failure}", err=True)
        return failure.exit_status


if __name__ == "__main__":
    sys.exit(main())
