#!/usr/bin/env python3
"""Write the reference pages that come from the code: commands, configuration, exit statuses.

``scripts/reference.py`` writes them, ``--check`` only says which are out of date (status 1). A test does the same.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pyslurm_budget import errors
from pyslurm_budget.cli.main import BROKEN_PIPE, INTERRUPTED, cli
from pyslurm_budget.cli.sbatch import USAGE
from pyslurm_budget.config import Config, setting_lines
from pyslurm_budget.config_keys import KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
GENERATED = "<!-- written by scripts/reference.py -->"


def failures(base: type[errors.SbudgetError] = errors.SbudgetError) -> Iterator[type[errors.SbudgetError]]:
    """Every class of failure below the base."""
    for found in base.__subclasses__():
        yield found
        yield from failures(found)


def exit_status() -> str:
    """The page of exit statuses."""
    rows = [(0, "", "all went well"), (1, "", errors.SbudgetError.summary)]
    rows += sorted((f.exit_status, f.__name__, f.summary) for f in failures())
    rows += [(INTERRUPTED, "", "ended by Ctrl-C"), (BROKEN_PIPE, "", "the reader of the output went away")]
    lines = [
        GENERATED,
        "# Exit statuses",
        "",
        "Every failure is one sentence on standard error and one of these statuses. They are part of the interface:",
        "a status never changes its meaning. `sbudget reconcile --every` reports a failed cycle and goes on; it ends",
        "with 0. `sbatch-budget` ends with sbatch's own status, unless it did not get that far.",
        "",
        "| status | class in `pyslurm_budget.errors` | meaning |",
        "|---:|---|---|",
        *(f"| {status} | {f'`{name}`' if name else ''} | {summary} |" for status, name, summary in rows),
    ]
    return "\n".join(lines) + "\n"


def configuration() -> str:
    """The page of the configuration file, its keys with their defaults, and the budget file."""
    rows = [f"| `{key.path}` | {_default(key.path)} | {key.says} |" for key in KEYS]
    return CONFIGURATION.format(generated=GENERATED, rows="\n".join(rows))


def _default(path: str) -> str:
    return f"`{DEFAULTS[path]}`" if path in DEFAULTS else "not set"


CONFIGURATION = """\
{generated}
# Configuration

One TOML file: the one named with `--config`, else by `$SBUDGET_CONFIG`, else `/etc/sbudget/sbudget.toml`. A key that
is not known, or a value that cannot be read, is an error that names the key and what is accepted; nothing falls back
to a default silently. `sbudget config check` reads the file, `sbudget config show` prints every setting in force.

Durations are texts with a unit (`"90s"`, `"15m"`, `"4h"`, `"7d"`) or Slurm's forms with a colon or a day
(`"1-12:00:00"`); a bare number is refused, because it means minutes to Slurm and seconds to most people. Parts are
percentages (`"2%"`) or fractions (`0.02`, `"1/3"`), kept exactly. Relative paths are beside the file.
`$SBUDGET_LEDGER_URL` wins over `ledger.url`, so that a password need not stand in a file that everybody reads.

`section.key` is written as `key = ...` below `[section]`.

| key | default | meaning |
|---|---|---|
{rows}

## Classes

`[classes]` maps each managed QOS to its spare twin. Without it: `backed = "spare"`. Jobs of any other QOS are left
alone; `adopt` names the managed QOS that jobs get which name none.

```toml
[classes]
normal = "normal-spare"
```

## Pools

Nodes whose GPUs are interchangeable for budgets form a pool. Without `[pools]` each GPU type is one.

```toml
[pools.a100]
flavors = ["a100", "a100-80"]

[pools.owners]
partitions = ["vision-lab"]
```

## Parts of a GPU

Slurm counts a MIG slice as a GPU of its own, and a shard as none. `[gpus.fractions]` says how much of a GPU one
device of a type is, and how much one shard is; each value is a fraction in quotes, so that it is exact.

```toml
[gpus.fractions]
"a100_1g.5gb" = "1/7"
"a100_3g.20gb" = "1/2"
shard = "1/8"
```

What is charged, what a waiting job costs, and the capacity of a pool are then in GPUs: a node of seven `1g.5gb`
slices is one GPU, and a job on two of them is charged 0.286, rounded up to thousandths. A device whose type is not in
AllocTRES counts as the dearest type of the nodes that the job is on; a type without a fraction is a whole GPU. Shards
count where a job holds them and no GPU (`gres/shard` must be in AccountingStorageTRES); they are shares of GPUs that
the node has anyway, so they add nothing to the capacity. Without `shard` here, a run with shards is reported as
unknown. GPU-hours in reports stay Slurm's count of devices; the charged GPU-hours beside them are in GPUs.

## Capacity

What a pool could deliver is sampled at every cycle: its GPUs in service (up, not drained; a node that sleeps to save
power counts). For a cloud, where nodes come and go with the load, that says little; `[capacity.fixed]` says how many
GPUs a pool counts as at all times, by the name of the pool.

```toml
[capacity.fixed]
h100 = 64
```

## Modes of parts

A partition or a budget may stay behind the cluster's `mode`, never go ahead of it: that is how a site is switched on
part by part. `"*"` stands for all that are not named; a budget below a named one is as the nearest named one above.
A job that may go to several partitions is under the most careful mode of them all.

```toml
mode = "enforce"

[modes.partitions]
"*" = "observe"       # all but these two
gpu = "enforce"
debug = "advise"

[modes.budgets]
vision = "observe"    # and all below it
vision-pilot = "enforce"
```

What is observed has the class that it would have, its runs are charged by that class, and nobody touches it: the
submit plugin leaves its jobs as they are, the controller changes none, its runs are not requeued, nor are others for
its jobs.

## The budget file

`sbudget budget apply budgets.toml` makes this the tree. One table a budget, flat; `parent` names another one.

```toml
[budgets.lab]
share = "100%"

[budgets.nlp]
parent = "lab"
share = "35%"

[budgets.bio]
parent = "lab"
account = "biology"
share = {{ "*" = "10%", h100 = "40%" }}
borrow = true
```

- `share`: part of the parent, in all pools, or a table by pool in which `"*"` means all others. The shares of one
  parent's budgets sum to at most 100 % in every pool; what is not given out stays with the parent.
- `account`: the Slurm account, where it is not the budget's name. An account has one budget, which covers the
  accounts below it up to the next one that has a budget of its own.
- `parent`: the nearest budget above it in Slurm's own tree. The two trees must tell the same.
- `borrow`: whether it may use, as backed work, what its siblings leave unused; `false` unless it is said. Also
  `sbudget budget borrow ACCOUNT on`. See [budgets](../howto/budgets.md).
- A changed share acts from the moment of `apply` on; hours before it keep the share that was in force. Only the very
  first tree acts on past hours too. A budget that is new, or moved to another parent, begins at that moment, and so
  has its whole allowance after one window.
"""


def commands() -> str:
    """The page of all commands."""
    parts = [GENERATED, "# Commands", "", INTRODUCTION]
    parts += [_command(cli, "sbudget")]
    for path, command in every_command(cli, "sbudget"):
        parts.append(_command(command, path))
    parts += ["## sbatch-budget", "", "```", USAGE.rstrip(), "```", ""]
    return "\n".join(parts)


INTRODUCTION = """\
Data go to standard output, everything else to standard error; no colours or lines are drawn unless the output is a
terminal. Exit statuses: [exit-status.md](exit-status.md).
"""


def every_command(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Each command below a group with its words."""
    for name, command in sorted(group.commands.items()):
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from every_command(command, f"{path} {name}")


def _command(command: click.Command, path: str) -> str:
    arguments = " ".join(
        p.make_metavar(click.Context(command)) for p in command.params if isinstance(p, click.Argument)
    )
    lines = [f"## {path}", "", f"`{f'{path} {arguments}'.strip()}`", "", *_help(command), ""]
    options = [p for p in command.params if isinstance(p, click.Option)]
    if options:
        lines += ["| option | meaning |", "|---|---|"]
        lines += [f"| `{_names(option)}` | {_cell(option.help or '')} |" for option in options]
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _help(command: click.Command) -> list[str]:
    return [line.strip() for line in (command.help or "").strip().splitlines()]


def _names(option: click.Option) -> str:
    metavar = "" if option.is_flag else f" {option.metavar or option.type.name.upper()}"
    return ", ".join(option.opts) + _cell(metavar)


EXAMPLE = """\
# Configuration of pyslurm_budget: /etc/sbudget/sbudget.toml (written by scripts/reference.py from the code).
# Every line that begins with "#" and a key shows the default; docs/reference/configuration.md explains the forms.
# Check it with: sbudget config check
"""


def example() -> str:
    """The example of the configuration file: what a site must say, and all else as a comment with its default."""
    lines = [EXAMPLE]
    section = None
    for key in KEYS:
        above, _, name = key.path.rpartition(".")
        if above != section and above:
            lines += ["", f"[{above}]"]
        section = above
        default = DEFAULTS.get(key.path) or SAMPLES.get(key.path)
        lines += [f"# {key.says}", REQUIRED.get(key.path, f"# {name} = {default}")]
    lines.append(EXAMPLE_END)
    return "\n".join(lines)


SAMPLES = {
    "slurm.conf": '"/etc/slurm/slurm.conf"',
    "slurm.database.socket": '"/run/mysqld/mysqld.sock"',
    "slurm.database.password_file": '"/etc/sbudget/slurmdb-password"',
    "reports.timezone": '"Europe/Berlin"',
    "privacy.pseudonymise_after": '"365d"',
    "checkpoints.folder": '"/shared/sbudget/checkpoints"',
}
REQUIRED = {"cluster": 'cluster = "alpha"', "mode": 'mode = "observe"'}
EXAMPLE_END = """
# Managed QOS and their spare twins; without this section: backed = "spare".
# [classes]
# backed = "spare"
# normal = "normal-spare"

# Pools of interchangeable GPUs; without any, each GPU type is one.
# [pools.a100]
# flavors = ["a100", "a100-80"]
# [pools.owners]
# partitions = ["vision-lab"]

# How much of a GPU one device of a type is, and one shard; a type that is not named is a whole GPU.
# [gpus.fractions]
# "a100_1g.5gb" = "1/7"
# shard = "1/8"

# GPUs that a pool counts as whatever its nodes do (clouds); a pool that is not named: those in service.
# [capacity.fixed]
# h100 = 64

# Partitions and budgets that stay behind the mode; "*" are all that are not named.
# [modes.partitions]
# debug = "observe"
# [modes.budgets]
# vision = "observe"
# vision-pilot = "enforce"
"""


def _defaults() -> dict[str, str]:
    """Default of each key, as it is written in the file."""
    found = {}
    section = ""
    for line in setting_lines(Config()):
        if line.startswith("["):
            section = line.strip("[]") + "."
        elif " = " in line:
            name, _, value = line.partition(" = ")
            found[section + name] = value
    return found


DEFAULTS = _defaults()
ROOT = FOLDER.parents[1]
PAGES = {
    FOLDER / "exit-status.md": exit_status,
    FOLDER / "configuration.md": configuration,
    FOLDER / "commands.md": commands,
    ROOT / "slurm_conf" / "sbudget.toml": example,
}


def main() -> int:
    """Write the pages, or say which are out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if a page is out of date")
    check = parser.parse_args().check
    stale = 0
    for file, page in PAGES.items():
        if file.is_file() and file.read_text(encoding="utf-8") == page():
            continue
        stale += 1
        if check:
            print(f"{file}: out of date; run scripts/reference.py", file=sys.stderr)
        else:
            file.write_text(page(), encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
