"""Commands with Slurm's names that answer as recorded: real processes in a folder that becomes the whole PATH."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

_SCRIPT = """#!{python}
import json, os, pathlib, sys
here = pathlib.Path({folder!r})
said = sys.stdin.read() if {reads} else ""
calls = here / "calls.jsonl"
with calls.open("a") as out:
    out.write(json.dumps([pathlib.Path(sys.argv[0]).name, sys.argv[1:], said, dict(os.environ)]) + chr(10))
for answer in json.loads((here / "answers.json").read_text()):
    if answer["words"] in " ".join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:], said]):
        sys.stdout.buffer.write(answer["out"].encode("utf-8", "surrogateescape"))
        sys.stdout.flush()
        sys.stderr.write(answer["err"])
        sys.exit(answer["status"])
sys.exit("no answer for " + " ".join(sys.argv))
"""


class Fakes:
    """The folder of the commands; each call and its environment is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers: list[dict[str, object]] = []
        for name in ("scontrol", "squeue", "sacct", "sacctmgr", "sbatch"):
            script = folder / name
            reads = "len(sys.argv) == 1"
            script.write_text(_SCRIPT.format(python=sys.executable, folder=str(folder), reads=reads))
            script.chmod(0o755)

    def answer(self, words: str, out: str = "", err: str = "", status: int = 0) -> None:
        """What a command line (or its standard input) with these words is answered; the first that fits counts."""
        self.answers.append({"words": words, "out": out, "err": err, "status": status})
        (self.folder / "answers.json").write_text(json.dumps(self.answers))

    def calls(self) -> list[tuple[str, list[str], str, dict[str, str]]]:
        """Name, arguments, standard input and environment of each call."""
        return [tuple(json.loads(line)) for line in (self.folder / "calls.jsonl").read_text().splitlines()]


def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fakes:
    """Put the commands where they are found, and nothing else."""
    folder = tmp_path / "commands"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return Fakes(folder)
