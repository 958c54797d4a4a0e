"""What a cluster looks like: options, folders, ports. Written to its folder, so that `up` knows its own."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

OPTIONS_FILE = "options.json"
PORTS = ("mariadb", "slurmdbd", "slurmctld")


class DevclusterError(Exception):
    """A failure to tell in one sentence; ``status`` is the exit status (1 failed, 2 wrong use)."""

    def __init__(self, sentence: str, status: int = 1) -> None:
        """``sentence`` says what, where, and what to do."""
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True)
class Options:
    """The options of `up`. ``flavors`` maps a GPU type to its number of nodes; ``accounts`` are paths (``a/b``)."""

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
    conf: dict[str, str] = field(default_factory=dict)

    def types(self) -> list[str]:
        """GPU type of each node, n1 first."""
        flavors = self.flavors or {"a100": self.nodes}
        return [flavor for flavor, count in flavors.items() for _ in range(count)]

    def text(self) -> str:
        """As stored in the cluster's folder."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"


@dataclass(frozen=True)
class Layout:
    """Folders and ports of one cluster. Ports from ``base_port``: MariaDB, slurmdbd, slurmctld, then one a node."""

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

    def port(self, daemon: str) -> int:
        """Port of a daemon."""
        if daemon in PORTS:
            return self.options.base_port + PORTS.index(daemon)
        return self.options.base_port + 10 + int(daemon[1:])

    def nodes(self) -> list[str]:
        """Node names."""
        return [f"n{i}" for i in range(1, len(self.options.types()) + 1)]

    def daemons(self) -> list[str]:
        """Every daemon in the order of its start."""
        return ["munged", "mariadb", "slurmdbd", "slurmctld", *self.nodes()]

    def log(self, daemon: str) -> Path:
        """Log file of a daemon."""
        return self.root / "log" / f"{daemon}.log"

    def pid_file(self, daemon: str) -> Path:
        """Where the process id of a daemon is remembered."""
        return self.root / "run" / f"{daemon}.id"

    def environment(self) -> dict[str, str]:
        """What `env` prints."""
        return {"SLURM_CONF": str(self.conf)}


def stored(root: Path) -> Options | None:
    """Options of the cluster in this folder, ``None`` if there is none."""
    path = root / OPTIONS_FILE
    if not path.exists():
        return None
    raw = json.loads(path.read_text(encoding="utf-8"))
    raw["accounts"], raw["qos"] = tuple(raw["accounts"]), tuple(raw["qos"])
    raw["users"] = {user: tuple(accounts) for user, accounts in raw["users"].items()}
    return Options(**raw)
