"""The cluster's files: keys, configuration, fake GPUs."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from devcluster_lib.layout import Layout

REQUEUE_DELAY_SINCE = (25, 11)
CGROUP_DISABLED_SINCE = (23, 2)
PASS_THROUGH = """\
-- Lets everything through: a stand-in until a site installs its own.
function slurm_job_submit(job_desc, part_list, submit_uid)
   return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   return slurm.SUCCESS
end
"""


def write(layout: Layout, release: tuple[int, int]) -> str:
    """Write everything for a new cluster; returns the password of slurmdbd's database."""
    root, etc = layout.root, layout.conf.parent
    folders = ("etc", "munge", "log", "run", "dev", "spool", "spool/ctld", *(f"spool/d.{n}" for n in layout.nodes()))
    for folder in (root, *(root / name for name in folders)):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    (root / "spool" / "ctld").chmod(0o700)
    _munge(root)
    _devices(layout)
    password = secrets.token_hex(16)
    _text(etc / "slurmdbd.conf", _slurmdbd_conf(layout, password), mode=0o600)
    _text(etc / "slurm.conf", slurm_conf(layout, release))
    _text(etc / "gres.conf", _gres_conf(layout))
    _text(etc / "cgroup.conf", "CgroupPlugin=disabled\n" if release >= CGROUP_DISABLED_SINCE else "")
    _text(etc / "job_submit.lua", PASS_THROUGH)
    if layout.options.epilog_seconds:
        _text(etc / "epilog", f"#!/bin/sh\nsleep {layout.options.epilog_seconds}\n", mode=0o755)
    return password


def _text(path: Path, text: str, mode: int = 0o644) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def _munge(root: Path) -> None:
    folder = root / "munge"
    key = folder / "key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(1024))
    shutil.chown(folder, "munge", "munge")
    shutil.chown(key, "munge", "munge")
    key.chmod(0o400)
    folder.chmod(0o711)


def _devices(layout: Layout) -> None:
    """Fake GPUs: character devices (null), because ordinary files are refused and no File counts as 0."""
    for i in range(layout.options.gpus_per_node):
        path = layout.root / "dev" / f"gpu{i}"
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        path.chmod(0o666)


def _ranges(layout: Layout) -> list[tuple[str, str, int, int]]:
    """(node expression, GPU type, first, last) for each run of equal nodes."""
    numbered = list(enumerate(layout.options.types(), start=1))
    found = []
    for flavor, group in groupby(numbered, key=lambda pair: pair[1]):
        members = [i for i, _ in group]
        first, last = members[0], members[-1]
        found.append((f"n{first}" if first == last else f"n[{first}-{last}]", flavor, first, last))
    return found


def _gres_conf(layout: Layout) -> str:
    last = layout.options.gpus_per_node - 1
    files = layout.root / "dev" / (f"gpu[0-{last}]" if last else "gpu0")
    lines = [f"NodeName={nodes} Name=gpu Type={flavor} File={files}" for nodes, flavor, _, _ in _ranges(layout)]
    return "\n".join(["AutoDetect=off", *lines]) + "\n"


def _slurmdbd_conf(layout: Layout, password: str) -> str:
    return f"""\
AuthType=auth/munge
AuthInfo=socket={layout.socket}
DbdHost=localhost
DbdPort={layout.port("slurmdbd")}
SlurmUser=root
LogFile={layout.log("slurmdbd")}
PidFile={layout.root}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={layout.port("mariadb")}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm_acct_db
"""


def slurm_conf(layout: Layout, release: tuple[int, int]) -> str:
    """slurm.conf; the options of ``conf`` replace, add or remove lines."""
    o, root = layout.options, layout.root
    delay_by_parameter = release >= REQUEUE_DELAY_SINCE
    scheduler = "bf_interval=1,sched_interval=2,sched_min_interval=0"
    settings = {
        "ClusterName": o.name,
        "SlurmctldHost": "localhost(127.0.0.1)",
        "SlurmctldPort": str(layout.port("slurmctld")),
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={layout.socket}" + ("" if delay_by_parameter else f",cred_expire={o.requeue_delay}"),
        "StateSaveLocation": f"{root}/spool/ctld",
        "SlurmdSpoolDir": f"{root}/spool/d.%n",
        "SlurmctldPidFile": f"{root}/run/slurmctld.pid",
        "SlurmdPidFile": f"{root}/run/d.%n.pid",
        "SlurmctldLogFile": str(layout.log("slurmctld")),
        "SlurmdLogFile": f"{root}/log/%n.log",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "DefMemPerCPU": str(max(1, o.memory_per_node // o.cpus_per_node // 4)),
        "SchedulerParameters": scheduler + (f",requeue_delay={o.requeue_delay}" if delay_by_parameter else ""),
        "PriorityType": "priority/multifactor",
        "PriorityWeightQOS": "1000",
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": "localhost",
        "AccountingStoragePort": str(layout.port("slurmdbd")),
        "AccountingStoragePass": str(layout.socket),
        "AccountingStorageTRES": ",".join(["gres/gpu", *(f"gres/gpu:{t}" for t in dict.fromkeys(o.types()))]),
        "AccountingStorageEnforce": "associations,limits,qos",
        "AccountingStoreFlags": "job_comment",
        "JobAcctGatherType": "jobacct_gather/none",
        "GresTypes": "gpu",
        "PreemptType": "preempt/qos",
        "PreemptMode": "REQUEUE",
        "JobRequeue": "1",
        "JobFileAppend": "1",
        "JobSubmitPlugins": "lua",
        "ReturnToService": "2",
        "MpiDefault": "none",
        "SlurmdParameters": "config_overrides",
        "KillWait": str(o.kill_wait),
        "MaxArraySize": "20001",
        "MaxJobCount": "40000",
        "MinJobAge": "300",
    }
    if o.epilog_seconds:
        settings["Epilog"] = str(layout.conf.parent / "epilog")
    lines, added = _changed(settings, o.conf)
    for nodes, flavor, first, last in _ranges(layout):
        ports = layout.port(f"n{first}"), layout.port(f"n{last}")
        port = str(ports[0]) if first == last else f"[{ports[0]}-{ports[1]}]"
        lines.append(
            f"NodeName={nodes} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs={o.cpus_per_node} "
            f"RealMemory={o.memory_per_node} Gres=gpu:{flavor}:{o.gpus_per_node} Feature={flavor} State=UNKNOWN"
        )
    count = len(layout.nodes())
    everything = "n1" if count == 1 else f"n[1-{count}]"
    lines.append(
        f"PartitionName={o.partition} Nodes={everything} Default=YES MaxTime={o.max_time} DefaultTime=60 State=UP "
        "OverSubscribe=NO"
    )
    return "\n".join([*lines, *added]) + "\n"


def _changed(settings: dict[str, str], conf: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The lines of the settings with those of ``conf`` instead, and the further lines of ``conf``.

    Slurm takes keys in any case. A key without value removes the line; a key that is not there may come repeatedly
    (NodeName, PartitionName).
    """
    given = [line.partition("=") for line in conf]
    replaced = {key.lower(): value for key, _, value in given}
    now = {key: replaced.get(key.lower(), value) for key, value in settings.items()}
    known = {key.lower() for key in settings}
    added = [f"{key}={value}" for key, _, value in given if value and key.lower() not in known]
    return [f"{key}={value}" for key, value in now.items() if value], added
