"""Record the answers of this machine's Slurm: ``python -m tests.golden.record``, by scripts/record-golden.

Starts a cluster, does the scenario in it, asks all that the product asks, and writes tests/golden/releases/RELEASE,
where a complete recording takes the place of the one before.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster.devcluster import PORT, DevCluster, closing_cluster, folder, install, slurm_release
from tests.cluster.network import private_network
from tests.golden.recording import Recorder, of_this_machine, same_marks
from tests.golden.scenario import OPTIONS, Scenario, look, silent

RELEASES = Path(__file__).with_name("releases")
DOWN = {"no-slurmdbd": "slurmdbd", "no-slurmctld": "slurmctld"}


def record(cluster: DevCluster, into: Path) -> None:
    """Do the scenario and write its answers."""
    scenario = Scenario(cluster)
    scenario.act()
    until = int(time.time()) + 1
    recorder = Recorder(cluster.conf, into, of_this_machine(cluster.folder))
    with same_marks():
        look(recorder, scenario.jobs, scenario.began, until)
        for phase, daemon in DOWN.items():
            recorder.phase = phase
            cluster.daemon("stop", daemon)
            silent(recorder, phase, until)
    version = cluster.run(["sinfo", "--version"]).out.split()[-1]
    recorder.index(slurm=version, began=scenario.began, until=until, jobs=scenario.jobs)


def main() -> int:
    """One recording, for the Slurm that is installed here."""
    install()
    target = RELEASES / "{}.{:02}".format(*slurm_release())
    RELEASES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=RELEASES) as made,
        private_network(),
        folder("golden") as place,
        closing_cluster(place, PORT + 450, **OPTIONS) as cluster,
    ):
        fresh = Path(made) / "answers"
        fresh.mkdir()
        record(cluster, fresh)
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)
    print(f"recorded: {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
