"""Runs one cycle, and at a step kills itself or has slurmctld killed and started again: claim_driver.py CONFIG STEP
[DEVCLUSTER FOLDER].

STEP is how the name of a step begins (the first such step). Prints each step's name as it is reached; ends with 3 if
the cycle has no such step.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import click

from pyslurm_budget.cli import wiring
from pyslurm_budget.config import load_config
from pyslurm_budget.errors import SbudgetError

config, wanted, *devcluster = sys.argv[1:]
met: list[str] = []


def on_step(name: str) -> None:
    print(name, flush=True)
    if met or not f"{name} ".startswith(f"{wanted} "):
        return
    met.append(name)
    if not devcluster:
        os.kill(os.getpid(), signal.SIGKILL)
    script, folder = devcluster
    subprocess.run([sys.executable, script, "restart", "--dir", folder, "--kill9", "slurmctld"], check=True)


with click.Context(click.Command("cycle")):
    reconciler = wiring.reconciler(load_config(config), on_step)
    try:
        reconciler.cycle(apply=True)
    except SbudgetError as error:
        print(f"failed: {error}", flush=True)
    finally:
        reconciler.close()
sys.exit(0 if met else 3)
