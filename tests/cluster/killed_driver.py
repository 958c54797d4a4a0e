"""Runs one cycle and kills itself (SIGKILL) when the n-th step is reached: killed_driver.py CONFIG N.

Prints each step's name as it is reached, so that a test knows where it died; ends with 0 if there were fewer steps.
"""

from __future__ import annotations

import os
import signal
import sys

import click

from pyslurm_budget.cli import wiring
from pyslurm_budget.config import load_config

left = int(sys.argv[2])


def on_step(name: str) -> None:
    global left  # noqa: PLW0603
    print(name, flush=True)
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


with click.Context(click.Command("cycle")):
    wiring.reconciler(load_config(sys.argv[1]), on_step).cycle(apply=True)
