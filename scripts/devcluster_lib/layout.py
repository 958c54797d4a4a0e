"""What a cluster looks like: options, folders, ports. Written to its folder, so that `up` knows its own."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

OPTIONS_FILE = "options.json"
READY_FILE = "ready"
PORTS = ("mariadb", "slurmdbd", "slurmctld")
FIRST_NODE_PORT = 11


class DevclusterError(Exception):
    """A failure to tell in one sentence; ``status`` is the exit status (1 failed, 2 wrong use)."""

    def __init__(self, sentence: str, status: int = 1) -> None:
        """``sentence`` says what, where, and what to do."""
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True)
class Options:
    """The options of `up`.

    ``flavors`` maps a GPU type to its number of nodes; ``accounts`` are paths (``a/b``); ``users`` maps a user to
    accounts, the first being the default one; ``conf`` has ``KEY=VALUE`` lines for slurm.conf.
    """

    name: str = "demo"
    nodes: int = 4
    gpus_per_node: int = 4
    cpus_per_node: int = 16
    memory_per_node: int = 64000
    flavors: dict[str, int] = field(default_factory=dict)
    base_port: int = 16800
    epilog_seconds: int = 0
    kill_wait: int = 2
    requeue_delay: int = 5
    accounts: tuple[str, ...] = ("nlp", "vision", "bio")
    users: dict[str, tuple[str, ...]] = field(
        default_factory=lambda: {"alice": ("nlp",), "bob": ("vision",), "carol": ("bio",)}
    )
    operator: str = "sbudget"
    qos: tuple[str, ...] = ()
    partition: str = "gpu"
    max_time: str = "INFINITE"
    conf: tuple[str, ...] = ()

    def types(self) -> list[str]:
        """GPU type of each node, n1 first."""
        flavors = self.flavors or {"a100": self.nodes}
        return [flavor for flavor, count in flavors.items() for _ in range(count)]

    def text(self) -> str:
        """As stored in the cluster's folder."""
        return json.dumps(asdict(self), indent=1) + "\n"

    def differing(self, other: Options) -> list[str]:
        """The options, as written on the command line, in which two clusters differ."""
        mine, others = asdict(self), asdict(other)
        return [f"--{name.replace('_', '-')}" for name in mine if mine[name] != others[name]]


@dataclass(frozen=True)
class Layout:
    """Folders and ports of one cluster.

    Ports: ``base_port`` MariaDB, +1 slurmdbd, +2 slurmctld, +11 the first node, +12 the second, and so on.
    """

    root: Path
    options: Options

    @property
    def conf(self) -> Path:
        """slurm.conf; SLURM_CONF names it for every daemon and command."""
        return self.root / "etc" / "slurm.conf"

    @property
    def socket(self) -> Path:
        """munged's socket."""
        return self.root / "munge" / "sock"

    def port(self, daemon: str) -> int | None:
        """Port of a daemon; ``None`` for munged, which has a socket."""
        if daemon == "munged":
            return None
        if daemon in PORTS:
            return self.options.base_port + PORTS.index(daemon)
        return self.options.base_port + FIRST_NODE_PORT + int(daemon[1:]) - 1

    def nodes(self) -> list[str]:
        """Node names."""
        return [f"n{i}" for i in range(1, len(self.options.types()) + 1)]

    def daemons(self) -> list[str]:
        """Every daemon in the order of its start."""
        return ["munged", *PORTS, *self.nodes()]

    def log(self, daemon: str) -> Path:
        """Log file of a daemon."""
        return self.root / "log" / f"{daemon}.log"

    def output(self, daemon: str) -> Path:
        """What a daemon prints: its last words if it ends before it opens its log file."""
        return self.root / "log" / f"{daemon}.out"

    def pid_file(self, daemon: str) -> Path:
        """Where the process of a daemon is remembered."""
        return self.root / "run" / f"{daemon}.id"

    def environment(self) -> dict[str, str]:
        """What `env` prints."""
        return {"SLURM_CONF": str(self.conf)}


def stored(root: Path) -> Options | None:
    """Options of the cluster in this folder, ``None`` if there is none."""
    try:
        raw = json.loads((root / OPTIONS_FILE).read_text(encoding="utf-8"))
        for name in ("accounts", "qos", "conf"):
            raw[name] = tuple(raw[name])
        raw["users"] = {user: tuple(accounts) for user, accounts in raw["users"].items()}
        return Options(**raw)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        sentence = f"{root / OPTIONS_FILE} is damaged ({error}); remove it, then take the cluster down"
        raise DevclusterError(sentence, 2) from None
