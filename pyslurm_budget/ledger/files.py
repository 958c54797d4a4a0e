"""A folder of archived runs: one Parquet file a month, and beside it what is in it.

A file is written beside its place, synced, and renamed; what a killed writer left is overwritten by the next one.
The columns are those of the table ``run``: whole numbers and texts, times in seconds since the epoch.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from contextlib import contextmanager
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from pyarrow import parquet
from sqlalchemy import BigInteger

from pyslurm_budget.domain.pseudonym import is_pseudonym
from pyslurm_budget.errors import ArchiveError
from pyslurm_budget.ledger import tables
from pyslurm_budget.ledger.rows import digest_of_runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyslurm_budget.service.archive import Month, Row

AT_ONCE = 20_000


class Folder:
    """Archived months of one cluster; see :class:`pyslurm_budget.service.archive.ArchiveFolder`."""

    def __init__(self, path: Path, cluster: str, timezone: str | None) -> None:
        """The folder must exist: a missing mount must not be hidden."""
        self._path = path
        self._cluster = cluster
        self._timezone = timezone

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other archivers out; raises ArchiveError if there is one, or the folder cannot be used."""
        try:
            handle = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise ArchiveError(
                f"{self._path} cannot be used ({error.strerror}); name a folder that exists"
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise ArchiveError(f"{self._path}: another `sbudget db archive` is at work there; wait for it") from None
        except OSError:
            pass  # some network file systems lock no folders
        try:
            yield
        finally:
            os.close(handle)

    def file(self, month: Month) -> Path:
        """Where the runs of a month are."""
        return self._path / f"runs-{month.name}.parquet"

    def has(self, month: Month) -> bool:
        """Whether there is a file of the month."""
        return self.file(month).exists()

    def write(self, month: Month, runs: Iterable[Row]) -> None:
        """Put the runs in the place of the month's file; raises ArchiveError."""
        with (
            self._replaced(self.file(month)) as file,
            parquet.ParquetWriter(file, _SCHEMA, compression="zstd") as new,
        ):
            rest = iter(runs)
            while batch := list(islice(rest, AT_ONCE)):
                new.write_table(pa.Table.from_pylist(batch, schema=_SCHEMA))

    def digest(self, month: Month) -> str:
        """The digest of the runs in the month's file, all of it read back; raises ArchiveError."""
        return digest_of_runs(self._rows(month))

    def digest_of(self, runs: Iterable[Row]) -> str:
        """The digest of these runs, to compare with."""
        return digest_of_runs(runs)

    def describe(self, month: Month) -> dict[str, Any]:
        """Write beside the month's file what is in it, unless that says so already; returns it."""
        found = self._manifest(month)
        path, text = self.file(month).with_suffix(".json"), (json.dumps(found, indent=2) + "\n").encode()
        try:
            if path.read_bytes() == text:
                return found
        except OSError:
            pass  # not there, or not readable: written anew
        with self._replaced(path) as file:
            file.write(text)
        return found

    def _manifest(self, month: Month) -> dict[str, Any]:
        counts = {"runs": 0, "gpus_unknown": 0, "pseudonyms": 0, "gpu_seconds": 0}
        for row in self._rows(month):
            counts["runs"] += 1
            counts["gpus_unknown"] += row["gpus"] is None
            counts["pseudonyms"] += is_pseudonym(row["user"])
            start, end = row["start"], row["end"]
            counts["gpu_seconds"] += 0 if start is None else (row["gpus"] or 0) * max(end - start, 0)
        path = self.file(month)
        with path.open("rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
            size = os.fstat(file.fileno()).st_size
        span = {"month": month.name, "timezone": self._timezone, "begin": month.begin, "end": month.end}
        return {"cluster": self._cluster, **span, **counts, "file": path.name, "bytes": size, "sha256": checksum}

    def _rows(self, month: Month) -> Iterator[Row]:
        path = self.file(month)
        try:
            with parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(AT_ONCE):
                    yield from batch.to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise ArchiveError(f"{path} cannot be read: {_words(error)}") from error

    @contextmanager
    def _replaced(self, path: Path) -> Iterator[IO[bytes]]:
        """A new file that takes the place when the block ends well; nothing is left of it otherwise."""
        new = path.with_name(f".{path.name}.new")
        try:
            handle = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o640)
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
            _sync_folder(self._path)
        except (OSError, pa.ArrowException) as error:
            raise ArchiveError(f"{path} cannot be written: {_words(error)}") from error
        finally:
            new.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _words(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0]


def _schema() -> pa.Schema:
    """Columns of the table ``run``, told to pandas so that whole numbers with gaps stay whole."""
    whole = {column.name: isinstance(column.type, BigInteger) for column in tables.run.c}
    empty = pd.DataFrame({n: pd.Series([], dtype="Int64" if w else "string") for n, w in whole.items()})
    told = pa.Schema.from_pandas(empty, preserve_index=False).metadata
    fields = [pa.field(name, pa.int64() if is_whole else pa.string()) for name, is_whole in whole.items()]
    return pa.schema(fields, metadata=told)


_SCHEMA = _schema()
