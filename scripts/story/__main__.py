"""The main job on a real Slurm: a story of a few minutes, every step checked against Slurm's own commands.

Time runs fast here: the budgets' week is 4 minutes, the longest contract one minute.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

import steps_rules
import steps_safety
from place import Site

from pyslurm_budget.render.narrator import Narrator

FOLDER = Path("/var/tmp/sbudget-quickstart")
BASE_PORT = 19800


def main() -> int:
    """Run the story; the cluster is taken down at the end, whatever happened."""
    parser = argparse.ArgumentParser(prog="quickstart", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the cluster up at the end")
    keep = parser.parse_args().keep
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    story = Narrator()
    site = Site(FOLDER, BASE_PORT)
    print("A Slurm cluster of 4 nodes with 4 GPUs each, and three groups: nlp 50 %, vision 30 %, bio 20 %.")
    print("The budgets' week is 4 minutes here, a contract at most 60 s. Setting it up ...", flush=True)
    try:
        site.up()
        before = site.slurm_settings()
        with steps_rules.installed(story, site):
            steps_rules.tell(story, site)
            steps_safety.tell(story, site, before)
    finally:
        if keep:
            print(f"\nThe cluster is still up: eval $(scripts/devcluster env --dir {FOLDER}); "
                  f"SBUDGET_CONFIG={site.config}")  # fmt: skip
        else:
            site.down()
    return story.end()


if __name__ == "__main__":
    sys.exit(main())
