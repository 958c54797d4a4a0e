"""What all commands share: the configuration of this call, sacct's output options, and writing to stdout."""

from __future__ import annotations

import functools
import os
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from pyslurm_budget.config import Config, load_config
from pyslurm_budget.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyslurm_budget.render.table import Style

DEBUG_VARIABLE = "SBUDGET_DEBUG"
_PIECE = 16384


@dataclass(slots=True)
class Context:
    """What the options before the command say. The configuration is read when a command first needs it."""

    given: str | None = None
    cluster: str | None = None
    debug: bool = False
    _config: Config | None = None

    @property
    def config(self) -> Config:
        """The configuration; raises ConfigError."""
        if self._config is None:
            config = load_config(self.given)
            if self.cluster is not None:
                if config.cluster not in (None, self.cluster):
                    raise ConfigError(
                        f"{config.source} is the configuration of cluster {config.cluster}, not of {self.cluster}; "
                        "name the other one with --config"
                    )
                config = replace(config, cluster=self.cluster)
            self._config = config
        return self._config


pass_context = click.make_pass_decorator(Context, ensure=True)


@dataclass(frozen=True, slots=True)
class Output:
    """The output options of a listing command. ``json`` and ``help_format`` stand above ``style``."""

    style: Style
    json: bool = False
    help_format: bool = False


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add sacct's output options to a command; it receives them as ``output``."""

    @click.option("-P", "--parsable2", "parsable", is_flag=True, help="Fields with '|' between them, plain numbers.")
    @click.option("-n", "--noheader", is_flag=True, help="No heading.")
    @click.option("--delimiter", default="|", metavar="TEXT", help="Between fields with -P.", show_default=True)
    @click.option("--format", "chosen", metavar="COL%WIDTH,...", help="Columns and their widths.")
    @click.option("--helpformat", "help_format", is_flag=True, help="List the columns for --format.")
    @click.option("--json", "as_json", is_flag=True, help="One JSON document.")
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        parsable: bool,
        noheader: bool,
        delimiter: str,
        chosen: str | None,
        help_format: bool,
        as_json: bool,
        **rest: Any,
    ) -> Any:
        from pyslurm_budget.render.table import Style

        style = Style(
            parsable=parsable, header=not noheader, delimiter=delimiter, chosen=chosen, fancy=not parsable and fancy()
        )
        return command(*args, output=Output(style, as_json, help_format), **rest)

    return wrapped


def fancy() -> bool:
    """Whether stdout is a terminal that can show line drawing."""
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "")
    return sys.stdout.isatty() and encoding.startswith("utf") and os.environ.get("TERM") != "dumb"


def data(text: str) -> None:
    """Write data to stdout, as it is; in pieces, because an unbuffered stdout loses the rest of a write cut short."""
    for begin in range(0, len(text), _PIECE):
        click.echo(text[begin : begin + _PIECE], nl=False)


def talk(text: str) -> None:
    """Write one sentence to stderr."""
    click.echo(text, err=True)


def host_now() -> int:
    """This host's clock, seconds since the epoch."""
    return int(time.time())


def seconds(_context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """A click callback: a duration such as ``30s`` or ``4h``."""
    from pyslurm_budget import values

    if value is None:
        return None
    try:
        found = values.duration(value)
    except ValueError as wrong:
        raise click.BadParameter(str(wrong), param=option) from None
    if found <= 0:
        raise click.BadParameter("must be longer than 0", param=option)
    return found
