"""Accounting that somebody saved: sacct's text with a header, or its JSON, read as if slurmdbd had answered."""

from __future__ import annotations

import io
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, cast

from pyslurm_budget.slurm.dump_json import json_runs
from pyslurm_budget.slurm.dump_lines import rows_of
from pyslurm_budget.slurm.dump_row import check_columns, is_step, run_of
from pyslurm_budget.slurm.dump_run import Options
from pyslurm_budget.slurm.dump_summary import RowError, Summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyslurm_budget.domain.model import RunRecord

_LOOK_AHEAD = 4096


class DumpAccounting:
    """The runs of a dump; implements :class:`pyslurm_budget.service.ports.Accounting`.

    ``source`` is the text, or a stream of text or bytes, which can be read once; bytes that are not UTF-8 are
    replaced. Text is read line by line, JSON as a whole. ``as_of`` is when it was taken (seconds since the epoch):
    running rows count until then; without it until they had run as long as their row says. ``timezone`` is the zone
    of times that have none, ``None`` this host's. Rows of another cluster than ``cluster`` are rejected.
    ``summary`` says what was read and rejected, when :meth:`runs` is through.
    """

    def __init__(
        self,
        source: str | IO[str] | IO[bytes],
        *,
        as_of: int | None = None,
        timezone: str | None = None,
        cluster: str | None = None,
    ) -> None:
        self._source = source
        self._options = Options(as_of, timezone, cluster)
        self.summary = Summary()

    def runs(self, since: int, until: int) -> Iterator[RunRecord]:
        """Every run of the dump that was alive or waiting in [since, until). Raises SlurmOutputError if the dump as
        a whole cannot be read."""
        self.summary = Summary()
        for run in self._all():
            self.summary.records += 1
            self.summary.unknown_gpus += run.start is not None and run.tres.gpus is None
            if run.key.submit < until and (run.end is None or run.end >= since):
                yield run

    def _all(self) -> Iterator[RunRecord]:
        with _text_stream(self._source) as stream:
            begin = _first_text(stream)
            if begin.lstrip("\ufeff \t\r\n").startswith("{"):
                yield from json_runs(begin + stream.read(), self._options, self.summary)
            else:
                yield from self._rows(_lines(begin, stream))

    def _rows(self, lines: Iterator[str]) -> Iterator[RunRecord]:
        checked = False
        for row in rows_of(lines, self.summary):
            if not checked:
                check_columns(row.cells)
                checked = True
            if is_step(row.cells):
                self.summary.steps += 1
                continue
            try:
                yield run_of(row.cells, self._options, self.summary)
            except RowError as error:
                self.summary.reject(row.line, error, "|".join(row.cells.values()))


@contextmanager
def _text_stream(source: str | IO[str] | IO[bytes]) -> Iterator[IO[str]]:
    """The source as text whose lines end at newlines alone: names may hold the other line ends of Unicode. A stream
    is left open: it is its owner who closes it."""
    if isinstance(source, str):
        yield io.StringIO(source, newline="\n")
    elif isinstance(source.read(0), str):
        yield cast("IO[str]", source)
    else:
        text = io.TextIOWrapper(cast("IO[bytes]", source), encoding="utf-8", errors="replace", newline="\n")
        try:
            yield text
        finally:
            with suppress(ValueError):
                text.detach()


def _first_text(stream: IO[str]) -> str:
    """The begin of the text, with something else than blanks in it if it has any."""
    text = ""
    while piece := stream.read(_LOOK_AHEAD):
        text += piece
        if text.strip("\ufeff \t\r\n"):
            return text
    return text


def _lines(begin: str, stream: IO[str]) -> Iterator[str]:
    """Lines of the text, with their newlines."""
    *whole, rest = begin.split("\n")
    for line in whole:
        yield line + "\n"
    first = next(stream, "")
    if rest + first:
        yield rest + first
    yield from stream
