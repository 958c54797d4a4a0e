"""Slurm of another Debian release: a root of that release, made once by debootstrap, and entered for each command.

A command runs in mounts of its own, which are gone with its last process, so nothing has to be unmounted. Inside, the
checkout lies where it lies outside, and everything else (packages, users, folders of clusters) is the root's own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from devcluster_lib import packages
from devcluster_lib.layout import DevclusterError
from devcluster_lib.locks import locked

if TYPE_CHECKING:
    from collections.abc import Sequence

# Debian release and its Slurm, for people.
RELEASES = {"bookworm": "22.05", "trixie": "24.11", "sid": "26.05"}
DEFAULT_ROOTS = Path("/var/tmp/sbudget-releases")
CHECKOUT = Path(__file__).resolve().parents[2]
MIRROR_VARIABLE = "SBUDGET_DEBIAN_MIRROR"
MIRROR = "http://deb.debian.org/debian"
READY = "sbudget-ready"
TOOLS = ("python3", "python3-venv", "ca-certificates", "iproute2", "lua5.4")
MAKE_SECONDS = 1800
# What the root needs of this machine to reach Debian's and Python's packages.
COPIED = ("/etc/resolv.conf", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
PASSED = (
    "CI",
    "SBUDGET_",
    "PIP_INDEX",
    "PIP_CERT",
    "PIP_TRUSTED",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENTER = """
root=$1 checkout=$2; shift 2
for each in proc dev sys; do mkdir -p "$root/$each"; mount --rbind "/$each" "$root/$each"; done
mkdir -p "$root$checkout"; mount --bind "$checkout" "$root$checkout"
exec chroot "$root" "$@"
"""


def own_release() -> str:
    """The machine's Debian release; empty if it is another system."""
    try:
        lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    found = dict(line.partition("=")[::2] for line in lines)
    return found.get("VERSION_CODENAME", "").strip('"') if found.get("ID") == "debian" else ""


def root_for(release: str, given: Path | None) -> Path:
    """The folder of a release's root."""
    return (given or DEFAULT_ROOTS / release).resolve()


def prepare(release: str, root: Path) -> None:
    """Make the root if it is not there; takes some minutes, and a gigabyte."""
    packages.require_root()
    if release not in RELEASES:
        raise DevclusterError(f"--release {release}: it takes {', '.join(RELEASES)}", 2)
    if (root / READY).exists():
        return
    if root.is_dir() and any(root.iterdir()) and not (root / "debootstrap").exists():
        raise DevclusterError(f"{root} is not empty, and no root of ours; choose another --root", 2)
    root.parent.mkdir(parents=True, exist_ok=True)
    with locked(root.with_name(f"{root.name}.lock"), MAKE_SECONDS, create=True):
        if not (root / READY).exists():
            _make(release, root)


def _make(release: str, root: Path) -> None:
    packages.ensure(("debootstrap",))
    shutil.rmtree(root, ignore_errors=True)
    mirror = os.environ.get(MIRROR_VARIABLE, MIRROR)
    root.mkdir()
    _do("debootstrap", "--variant=minbase", release, str(root), mirror)
    for name in (*COPIED, *map(str, Path("/etc/apt/apt.conf.d").glob("99*"))):
        if Path(name).is_file():
            (root / name[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(name, root / name[1:])
    # Without it every daemon, and sacctmgr, fails to resolve localhost: a minute a call.
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n", encoding="utf-8")
    options = ("-o", "Acquire::Check-Valid-Until=false")
    _do(*entering(root, "apt-get", *options, "update", "-qq"))
    _do(*entering(root, "apt-get", *options, "install", "-y", "-qq", "--no-install-recommends", *TOOLS))
    certificates = Path(COPIED[2])
    if certificates.is_file():  # that of the package knows nothing of this machine's own
        shutil.copyfile(certificates, root / COPIED[2][1:])
    _do(*entering(root, "python3", str(CHECKOUT / "scripts" / "devcluster"), "install"))
    (root / READY).touch()


def entering(root: Path, *command: str) -> list[str]:
    """The command line that runs a command in the root, in the checkout's folder."""
    env = [f"{name}={value}" for name, value in os.environ.items() if name.startswith(PASSED)]
    inside = ["env", "-i", "HOME=/root", "LANG=C.UTF-8", f"PATH={PATH}", "DEBIAN_FRONTEND=noninteractive", *env]
    here = ["sh", "-c", 'cd "$0" && exec "$@"', str(CHECKOUT), *command]
    outside = ["unshare", "--mount", "--propagation", "private", "--", "sh", "-eu", "-c", ENTER, "sh"]
    return [*outside, str(root), str(CHECKOUT), *inside, *here]


def enter(root: Path, command: Sequence[str]) -> int:
    """Run a command in the root, on this terminal; returns its exit status."""
    return subprocess.run(entering(root, *command), check=False).returncode


def without(words: list[str]) -> list[str]:
    """The arguments of a command without those that say where it is to run."""
    found: list[str] = []
    skip = False
    for word in words:
        if not skip and word.partition("=")[0] not in ("--release", "--root"):
            found.append(word)
        skip = not skip and word in ("--release", "--root")
    return found


def _do(*argv: str) -> None:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=MAKE_SECONDS,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise DevclusterError(f"{argv[0]} was not over after half an hour; is the mirror reachable?") from None
    if done.returncode:
        words = " ".join((done.stderr or done.stdout).strip().splitlines()[-2:])
        raise DevclusterError(f"making the root failed: {argv[0]} ended with {done.returncode}: {words[-400:]}")
