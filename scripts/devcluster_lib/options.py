"""The command line: parsed, and refused in one sentence where it cannot work."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from devcluster_lib.layout import FIRST_NODE_PORT, DevclusterError, Layout, Options
from devcluster_lib.releases import DEFAULT_ROOTS, RELEASES

DEFAULT_DIR = Path("/var/tmp/sbudget-devcluster")
# Below this slurmctld ignores AuthInfo=cred_expire, and a requeued job waits two minutes.
LEAST_DELAY = 5
LAST_PORT = 65535
# A UNIX socket's address has 108 bytes; MariaDB and munge cut longer ones without a word.
LONGEST_SOCKET = 100
NAME = r"[a-z_][a-z0-9_-]{0,30}"
TYPE = r"[A-Za-z][A-Za-z0-9_]*"
COMMANDS = {
    "up": "start a cluster, or what is missing of it; returns when a test job has run",
    "down": "end it, and remove what was made",
    "status": "what runs; exit status 3 if not everything does",
    "env": "the environment for Slurm's commands, to be evaluated by a shell",
    "install": "install the packages and no more",
    "enter": "a shell, or a command, where the Slurm of another --release is",
    "start": "start one daemon",
    "stop": "stop one daemon",
    "restart": "restart one daemon",
}


def arguments(description: str, argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="devcluster", description=description)
    versions = ", ".join(f"{release}: {slurm}" for release, slurm in RELEASES.items())
    commands = parser.add_subparsers(dest="command", required=True)
    for name, help_text in COMMANDS.items():
        command = commands.add_parser(name, help=help_text, description=help_text)
        add = command.add_argument
        add("--release", choices=RELEASES, help=f"Debian's release and with it Slurm's ({versions})")
        add("--root", type=Path, help=f"folder of that release's root ({DEFAULT_ROOTS}/RELEASE)")
        if name == "enter":
            add("words", nargs=argparse.REMAINDER, metavar="COMMAND", help="the command (bash)")
        if name not in ("install", "enter"):
            add("--dir", type=Path, default=DEFAULT_DIR, help="folder of the cluster (%(default)s)")
        if name in ("status", "env"):
            add("--json", action="store_true", help="as JSON")
        if name == "down":
            add("--keep", action="store_true", help="keep the folder and the users; `up` goes on from there")
        if name in ("start", "stop", "restart"):
            add("daemon", help="slurmctld, slurmdbd, mariadb, munged, n1 ...")
        if name in ("stop", "restart"):
            add("--kill9", action="store_true", help="kill it without warning")
        if name == "up":
            _up_options(command, Options())
    return parser.parse_args(argv)


def _up_options(command: argparse.ArgumentParser, default: Options) -> None:
    add = command.add_argument
    users = ",".join(":".join([user, *accounts]) for user, accounts in default.users.items())
    shown = "(%(default)s)"
    add("--name", default=default.name, help=f"Slurm's ClusterName {shown}")
    add("--nodes", type=int, help=f"number of nodes ({default.nodes}, or as --flavors says)")
    add("--gpus-per-node", type=int, default=default.gpus_per_node, metavar="N", help=shown)
    add("--cpus-per-node", type=int, default=default.cpus_per_node, metavar="N", help=shown)
    add("--memory-per-node", type=int, default=default.memory_per_node, metavar="MB", help=shown)
    add("--flavors", default="", help="nodes per GPU type, as a100:3,h100:1; the type is a feature too (all a100)")
    add("--base-port", type=int, default=default.base_port, metavar="PORT",
        help=f"11 + nodes ports: PORT to PORT+2, and n1 at PORT+{FIRST_NODE_PORT} and so on {shown}")  # fmt: skip
    add("--epilog-seconds", type=int, default=default.epilog_seconds, metavar="S", help=f"epilog's sleep {shown}")
    add("--kill-wait", type=int, default=default.kill_wait, metavar="S", help=f"from SIGTERM to SIGKILL {shown}")
    add("--requeue-delay", type=int, default=default.requeue_delay, metavar="S",
        help=f"until a requeued job may start, at least {LEAST_DELAY} {shown}")  # fmt: skip
    add("--accounts", default=",".join(default.accounts), help=f"a child is written parent/child {shown}")
    add("--users", default=users, help=f"user:account[:account...],... {shown}")
    add("--operator", default=default.operator, metavar="USER", help=f"has AdminLevel=Operator {shown}")
    add("--qos", default="", help="further QOS, given to all accounts (none)")
    add("--partition", default=default.partition, help=shown)
    add("--max-time", default=default.max_time, help=f"MaxTime of the partition {shown}")
    add("--conf", action="append", default=[], metavar="KEY=VALUE", help="replace, add or (KEY=) remove a line")


def options_of(given: argparse.Namespace) -> Options:
    """The options of `up` as a value; DevclusterError with status 2 says what is wrong with them."""
    flavors = _flavors(given.flavors)
    options = Options(
        name=given.name,
        nodes=_nodes(given.nodes, flavors),
        gpus_per_node=given.gpus_per_node,
        cpus_per_node=given.cpus_per_node,
        memory_per_node=given.memory_per_node,
        flavors=flavors,
        base_port=given.base_port,
        epilog_seconds=given.epilog_seconds,
        kill_wait=given.kill_wait,
        requeue_delay=given.requeue_delay,
        accounts=tuple(_listed(given.accounts)),
        users=_users(given.users),
        operator=given.operator,
        qos=tuple(_listed(given.qos)),
        partition=given.partition,
        max_time=given.max_time,
        conf=tuple(given.conf),
    )
    _check_numbers(options)
    _check_names(options)
    _check_accounts(options)
    for line in options.conf:
        if not re.fullmatch(r"[A-Za-z]+=[^\n]*", line):
            raise _wrong("conf", line, "KEY=VALUE")
    return options


def root_of(folder: Path) -> Path:
    """The cluster's folder, absolute and without links: it marks the cluster's processes."""
    root = folder.resolve()
    if not re.fullmatch(r"/[A-Za-z0-9._/+@-]+", str(root)) or len(root.parts) < 3:
        raise _wrong("dir", folder, "a folder below another one, of letters, digits and . _ - + @")
    if len(str(Layout(root, Options()).socket)) > LONGEST_SOCKET:
        raise _wrong("dir", folder, "a shorter path: it holds a UNIX socket")
    return root


def _wrong(option: str, value: object, wanted: str) -> DevclusterError:
    return DevclusterError(f"--{option} {value}: it takes {wanted}", 2)


def _listed(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _flavors(text: str) -> dict[str, int]:
    flavors: dict[str, int] = {}
    for word in _listed(text):
        flavor, _, count = word.partition(":")
        if not re.fullmatch(TYPE, flavor) or not re.fullmatch("[1-9][0-9]{0,3}", count) or flavor in flavors:
            raise _wrong("flavors", text, "each type once with its number of nodes, as a100:3,h100:1")
        flavors[flavor] = int(count)
    return flavors


def _nodes(given: int | None, flavors: dict[str, int]) -> int:
    if flavors and given not in (None, sum(flavors.values())):
        raise DevclusterError(f"--nodes {given}: --flavors makes {sum(flavors.values())}; leave one of them away", 2)
    return sum(flavors.values()) or (Options().nodes if given is None else given)


def _users(text: str) -> dict[str, tuple[str, ...]]:
    users: dict[str, tuple[str, ...]] = {}
    for word in _listed(text):
        user, *accounts = word.split(":")
        if not accounts or user in users:
            raise _wrong("users", text, "each user once with at least one account, as alice:nlp,bob:vision:bio")
        users[user] = tuple(accounts)
    if not users:
        raise _wrong("users", "''", "at least one: the test job is submitted by a user")
    return users


def _check_numbers(options: Options) -> None:
    for option, value, least in (
        ("nodes", options.nodes, 1),
        ("gpus-per-node", options.gpus_per_node, 1),
        ("cpus-per-node", options.cpus_per_node, 1),
        ("memory-per-node", options.memory_per_node, options.cpus_per_node),
        ("base-port", options.base_port, 1024),
        ("epilog-seconds", options.epilog_seconds, 0),
        ("kill-wait", options.kill_wait, 1),
        ("requeue-delay", options.requeue_delay, LEAST_DELAY),
    ):
        if value < least:
            raise _wrong(option, value, f"a number from {least} on")
    last = options.base_port + FIRST_NODE_PORT - 1 + options.nodes
    if last > LAST_PORT:
        raise DevclusterError(f"--base-port {options.base_port}: the last node's port would be {last}", 2)


def _check_names(options: Options) -> None:
    users = [*options.users, *([options.operator] if options.operator else [])]
    for option, names in (
        ("name", [options.name]),
        ("accounts", [name for path in options.accounts for name in path.split("/")]),
        ("users", users),
        ("qos", options.qos),
        ("partition", [options.partition]),
    ):
        for name in names:
            if not re.fullmatch(NAME, name) or name == "root":
                raise _wrong(option, name, "names of small letters, digits, _ and -, and not root")


def _check_accounts(options: Options) -> None:
    paths = [path.split("/") for path in options.accounts]
    if not paths:
        raise _wrong("accounts", "''", "at least one")
    parents: dict[str, str] = {}
    for path in paths:
        for parent, name in zip(["root", *path], path, strict=False):
            if parents.setdefault(name, parent) != parent:
                raise DevclusterError(f"--accounts: {name} has two parents, {parents[name]} and {parent}", 2)
    for user, accounts in options.users.items():
        for account in accounts:
            if account not in parents:
                raise DevclusterError(f"--users {user}:{account}: --accounts has no {account}", 2)
