"""The configuration: one TOML file, read once, every value checked, nothing guessed.

Searched in this order: ``--config``, ``$SBUDGET_CONFIG``, ``/etc/sbudget/sbudget.toml``. A key that is unknown, of
the wrong type or unreadable is a :class:`ConfigError` with the file, the key, what was found and what is accepted.
Relative paths are relative to the file. ``$SBUDGET_LEDGER_URL`` wins over ``[ledger] url``, so that a password need
not be in a file that everybody reads.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from dataclasses import dataclass, field, replace
from fractions import Fraction
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyslurm_budget import values
from pyslurm_budget.config_keys import (
    BY_PATH,
    FIXED,
    FRACTIONS,
    FREE_SECTIONS,
    KEYS,
    MODES,
    SECTIONS,
    TIMES,
    ledger_url,
    mode,
)
from pyslurm_budget.domain.interactive import Interactive
from pyslurm_budget.domain.model import Mode
from pyslurm_budget.domain.modes import Modes
from pyslurm_budget.domain.policy import ClassMap, Policy, PoolRule
from pyslurm_budget.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CONFIG_VARIABLE = "SBUDGET_CONFIG"
LEDGER_VARIABLE = "SBUDGET_LEDGER_URL"
USUAL_PLACE = Path("/etc/sbudget/sbudget.toml")
_POLICY = "policy."
_DEFAULTS = {"interactive": Interactive()}
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))
_PATHS = (
    *("state_dir", "kill_switch", "slurm_conf", "table_path", "state_path"),
    *("database_socket", "database_password_file", "checkpoints"),
)


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that a site decides. ``source`` is the file, ``None`` for the defaults; durations are seconds.

    ``table_path`` and ``state_path`` default to files below ``state_dir``; ``timezone`` ``None`` is the system's.
    """

    policy: Policy = field(default_factory=Policy)
    source: Path | None = None
    cluster: str | None = None
    mode: Mode = Mode.OBSERVE
    state_dir: Path = Path("/var/lib/sbudget")
    kill_switch: Path = Path("/etc/sbudget/stop")
    operators: tuple[str, ...] = ()
    ledger_url: str = "sqlite:////var/lib/sbudget/ledger.sqlite"
    lease_seconds: int = 120
    slurm_conf: Path | None = None
    slurm_timeout: int = 60
    accounting: str = "sacct"
    database_host: str = "localhost"
    database_port: int = 3306
    database_socket: Path | None = None
    database_name: str = "slurm_acct_db"
    database_user: str = "sbudget"
    database_password_file: Path | None = None
    table_path: Path = Path("/var/lib/sbudget/public/table")
    state_path: Path = Path("/var/lib/sbudget/public/state.json")
    timezone: str | None = None
    interval: int = 30
    pseudonymise_after: int | None = None
    checkpoints: Path | None = None

    @property
    def adopt(self) -> str | None:
        """The managed QOS of jobs that name none."""
        return self.policy.classes.adopt


def find_config(given: str | Path | None, environ: Mapping[str, str] | None = None) -> Path | None:
    """The file to read: what was given, else the environment's, else the usual place if it is there, else ``None``.

    Raises ConfigError for a file that was named and is not there.
    """
    named = given or (os.environ if environ is None else environ).get(CONFIG_VARIABLE)
    if named:
        path = Path(named)
        if not path.is_file():
            origin = "--config" if given else f"${CONFIG_VARIABLE}"
            raise ConfigError(f"{path}: no such file (named by {origin})")
        return path
    return USUAL_PLACE if USUAL_PLACE.is_file() else None


def load_config(given: str | Path | None = None, environ: Mapping[str, str] | None = None) -> Config:
    """Read the configuration; raises ConfigError, also where no file is found."""
    environ = os.environ if environ is None else environ
    path = find_config(given, environ)
    if path is None:
        raise ConfigError(
            f"no configuration: {USUAL_PLACE} does not exist; name a file with --config or ${CONFIG_VARIABLE}, "
            "or begin with the example sbudget.toml"
        )
    config = read_config(_text(path), path)
    url = environ.get(LEDGER_VARIABLE)
    try:
        return replace(config, ledger_url=ledger_url(url)) if url else config
    except ValueError as wrong:
        raise ConfigError(f"${LEDGER_VARIABLE}: {wrong}") from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as failure:
        raise ConfigError(f"{path}: cannot be read ({failure.strerror})") from failure
    except UnicodeDecodeError as failure:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {failure.start})") from failure


def read_config(text: str, source: Path) -> Config:
    """The configuration that the text of the file ``source`` means; raises ConfigError."""
    try:
        document = values.read_toml(text)
    except tomllib.TOMLDecodeError as failure:
        raise ConfigError(f"{source}: is not valid TOML: {failure}") from failure
    found: dict[str, Any] = {}
    rules: dict[str, Any] = {}
    for path, value in _entries(document, source):
        key = BY_PATH[path]
        read = _value(key.read, value, f"{source}: {path}")
        if key.sets.startswith(_POLICY):
            whole, _, part = key.sets.removeprefix(_POLICY).partition(".")
            rules[whole] = replace(rules.get(whole, _DEFAULTS[whole]), **{part: read}) if part else read
        else:
            found[key.sets] = read
    classes = _classes(document["classes"], source) if "classes" in document else ClassMap()
    rules["classes"] = _adopting(classes, found.pop("adopt", None), source)
    if "pools" in document:
        rules["pools"] = _pools(document["pools"], source)
    if "fractions" in document.get("gpus", {}):
        rules["fractions"] = _fractions(document["gpus"]["fractions"], source)
    if "fixed" in document.get("capacity", {}):
        rules["fixed"] = _fixed(document["capacity"]["fixed"], source)
    if "modes" in document:
        rules["modes"] = _modes(document["modes"], source)
    config = Config(policy=Policy(**rules), source=source, **_places(found, source.parent))
    _agrees(config, source)
    return config


def _entries(document: dict[str, Any], source: Path, above: str = "") -> Iterator[tuple[str, object]]:
    """Every plain key with its path; unknown sections and keys are refused. ``above`` is the section with its dot."""
    for name, value in document.items():
        path = above + name
        if path in FREE_SECTIONS:
            continue
        if "." in name or (path not in SECTIONS and path not in BY_PATH):
            known = [*BY_PATH, *FREE_SECTIONS] if above else [*(key for key in BY_PATH if "." not in key), *SECTIONS]
            raise ConfigError(f"{source}: unknown key {path}{values.nearest(path, known)}")
        if path in BY_PATH:
            yield path, value
        elif isinstance(value, dict):
            yield from _entries(value, source, f"{path}.")
        else:
            raise ConfigError(f"{source}: {path}: found {values.shown(value)}; accepted is a section [{path}]")


def _value(read: Any, value: object, where: str) -> Any:
    try:
        return read(value)
    except ValueError as wrong:
        raise ConfigError(f"{where}: {wrong}") from None


def _places(found: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Texts to paths, relative ones beside the file; the published files below ``state_dir`` unless named."""
    for name in _PATHS:
        if name in found:
            found[name] = (folder / found[name]).absolute()
    if "state_dir" in found:
        public = found["state_dir"] / "public"
        found.setdefault("table_path", public / "table")
        found.setdefault("state_path", public / "state.json")
    return found


def _section(value: object, name: str, source: Path) -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        raise ConfigError(f"{source}: {name}: found {values.shown(value)}; accepted is a section with entries")
    return value


def _classes(value: object, source: Path) -> ClassMap:
    """``managed = "twin"`` lines."""
    section = _section(value, "classes", source)
    twins = {name: _value(values.text, twin, f"{source}: classes.{name}") for name, twin in section.items()}
    for name, twin in twins.items():
        if twin in twins:
            raise ConfigError(f"{source}: classes.{name}: {twin} is a managed QOS itself and cannot be a spare twin")
    return ClassMap(MappingProxyType(twins), adopt=None)


def _adopting(classes: ClassMap, name: str | None, source: Path) -> ClassMap:
    """The map with the QOS of jobs that name none: without a word of the site only on an empty site (``backed``)."""
    if name is None:
        return classes
    if name not in classes.twins:
        raise ConfigError(f"{source}: adopt: {name} is no managed QOS; accepted are {', '.join(classes.twins)}")
    return replace(classes, adopt=name)


def _pools(value: object, source: Path) -> tuple[PoolRule, ...]:
    """``[pools.NAME]`` with ``flavors`` or ``partitions``; no flavor or partition in two pools."""
    rules = []
    owner: dict[tuple[str, str], str] = {}
    for name, table in _section(value, "pools", source).items():
        members: dict[str, tuple[str, ...]] = {}
        for kind, listed in _section(table, f"pools.{name}", source).items():
            where = f"{source}: pools.{name}.{kind}"
            if kind not in ("flavors", "partitions"):
                raise ConfigError(f"{where}: unknown key{values.nearest(kind, ['flavors', 'partitions'])}")
            members[kind] = _value(values.texts, listed, where)
            for member in members[kind]:
                other = owner.setdefault((kind, member), name)
                if other != name:
                    raise ConfigError(f"{where}: {member} belongs to pool {other} already")
        if not any(members.values()):
            raise ConfigError(f"{source}: pools.{name}: names neither flavors nor partitions")
        rules.append(PoolRule(name=name, **members))
    return tuple(rules)


def _fractions(value: object, source: Path) -> Mapping[str, Fraction]:
    """``"type" = "1/7"`` lines, and ``shard``."""
    section = _section(value, FRACTIONS, source)
    found = {name: _value(values.part, part, f"{source}: {FRACTIONS}.{name}") for name, part in section.items()}
    for name in found:
        if not re.fullmatch("[A-Za-z0-9_.+-]+", name):
            accepted = "accepted is a GPU type as Slurm has it, or shard"
            raise ConfigError(f"{source}: {FRACTIONS}: found {name!r}; {accepted}")
    return MappingProxyType(found)


def _fixed(value: object, source: Path) -> Mapping[str, int]:
    """``pool = 64`` lines."""
    section = _section(value, FIXED, source)
    return MappingProxyType(
        {name: _value(values.whole, gpus, f"{source}: {FIXED}.{name}") for name, gpus in section.items()}
    )


def _modes(value: Mapping[str, object], source: Path) -> Modes:
    """``[modes.partitions]`` and ``[modes.budgets]`` with ``name = "observe"`` lines; ``"*"`` are all others."""
    found: dict[str, Mapping[str, Mode]] = {}
    for kind, section in MODES.items():
        if kind in value:
            entries = _section(value[kind], section, source)
            read = {name: _value(mode, given, f"{source}: {section}.{name}") for name, given in entries.items()}
            found[kind] = MappingProxyType(read)
    return Modes(**found)


def _agrees(config: Config, source: Path) -> None:
    """Values that are right each by itself, and contradict each other."""
    rules = config.policy
    wrong = None
    if rules.default_contract > rules.cap:
        wrong = "contract.default is longer than contract.cap"
    elif rules.floor > rules.cap:
        wrong = "contract.floor is longer than contract.cap"
    elif rules.cap > rules.window:
        wrong = "contract.cap is longer than window.length"
    elif rules.hour > rules.window:
        wrong = "window.hour is longer than window.length"
    elif config.table_path == config.state_path:
        wrong = "publish.table and publish.state are the same file"
    elif config.pseudonymise_after is not None and config.pseudonymise_after < rules.window + 86400:
        wrong = "privacy.pseudonymise_after is shorter than window.length and a day: budgets still count by user then"
    elif rules.stale_after < 2 * config.interval:
        wrong = "cycle.stale_after is shorter than two times cycle.interval: every table would be stale"
    if wrong:
        raise ConfigError(f"{source}: {wrong}")


def effective(config: Config) -> dict[str, object]:
    """Every key of the file with the value in force, for ``config show``; a password in the URL is masked."""
    shown: dict[str, object] = {}
    for key in KEYS:
        holder: object = config.policy if key.sets.startswith(_POLICY) else config
        shown[key.path] = attrgetter(key.sets.removeprefix(_POLICY))(holder)
    shown["ledger.url"] = masked(config.ledger_url)
    shown["charge.by"] = "largest" if config.policy.charge_largest else "gpu"
    for name, twin in config.policy.classes.twins.items():
        shown[f"classes.{name}"] = twin
    for rule in config.policy.pools:
        for kind in ("flavors", "partitions"):
            if getattr(rule, kind):
                shown[f"pools.{rule.name}.{kind}"] = getattr(rule, kind)
    for name, part in config.policy.fractions.items():
        shown[f"{FRACTIONS}.{name}"] = part
    for name, gpus in config.policy.fixed.items():
        shown[f"{FIXED}.{name}"] = gpus
    for kind, section in MODES.items():
        for name, of_part in getattr(config.policy.modes, kind).items():
            shown[f"{section}.{name}"] = of_part
    return shown


def masked(url: str) -> str:
    """A database URL without its password."""
    scheme, mark, rest = url.partition("://")
    who, at, where = rest.rpartition("@")
    user, colon, _ = who.partition(":")
    return f"{scheme}{mark}{user}:***{at}{where}" if at and colon else url


def setting_lines(config: Config) -> list[str]:
    """The settings in force as a file that says the same (but for a password); what is not set is a comment."""
    shown = effective(config)
    sections: dict[str, list[str]] = {}
    for key in KEYS:
        section, _, name = key.path.rpartition(".")
        value = shown[key.path]
        line = f"# {name} is not set" if value is None else f"{name} = {_toml(value, is_time=key.read in TIMES)}"
        sections.setdefault(section, []).append(line)
    lines = sections.pop("", [])
    for section, entries in sections.items():
        lines += ["", f"[{section}]", *entries]
    lines += ["", "[classes]", *(f"{_bare(n)} = {json.dumps(t)}" for n, t in config.policy.classes.twins.items())]
    for rule in config.policy.pools:
        lines += ["", f"[pools.{_bare(rule.name)}]"]
        lines += [
            f"{kind} = {_toml(getattr(rule, kind))}" for kind in ("flavors", "partitions") if getattr(rule, kind)
        ]
    parts = [f'{_bare(n)} = "{p.numerator}/{p.denominator}"' for n, p in config.policy.fractions.items()]
    lines += ["", f"[{FRACTIONS}]", *parts] if parts else []
    fixed = [f"{_bare(name)} = {gpus}" for name, gpus in config.policy.fixed.items()]
    lines += ["", f"[{FIXED}]", *fixed] if fixed else []
    for kind, section in MODES.items():
        modes = [f'{_bare(name)} = "{of_part}"' for name, of_part in getattr(config.policy.modes, kind).items()]
        lines += ["", f"[{section}]", *modes] if modes else []
    return lines


def _bare(name: str) -> str:
    """A key as TOML wants it: in quotes unless it is of letters, digits, ``-`` and ``_``."""
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _toml(value: object, *, is_time: bool = False) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return json.dumps(list(value), ensure_ascii=False)
    if isinstance(value, Fraction):
        percent = value * 100
        return f'"{percent}%"' if percent.denominator == 1 else f'"{value}"'
    if isinstance(value, int) and is_time:
        unit, name = next(((u, n) for u, n in _UNITS if value % u == 0), (1, "s"))
        return f'"{value // unit}{name}"' if value else '"0s"'
    return str(value) if isinstance(value, int) else json.dumps(str(value), ensure_ascii=False)
