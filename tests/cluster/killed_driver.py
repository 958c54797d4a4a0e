"""Runs one cycle and kills itself (SIGKILL) at a step: killed_driver.py CONFIG STEP.

STEP is a number, or how the name of a step begins (the first such step). Prints each step's name as it is reached, so
that a test knows where it died; ends with 0 if the cycle has no such step.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys

import click

from pyslurm_budget.cli import wiring
from pyslurm_budget.config import load_config

config, wanted = sys.argv[1:]
numbers = itertools.count(1)


def on_step(name: str) -> None:
    print(name, flush=True)
    number = next(numbers)
    if number == int(wanted) if wanted.isdigit() else f"{name} ".startswith(f"{wanted} "):
        os.kill(os.getpid(), signal.SIGKILL)


with click.Context(click.Command("cycle")):
    wiring.reconciler(load_config(config), on_step).cycle(apply=True)
