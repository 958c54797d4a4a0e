"""Random groups: what they submit, and when they rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.cluster.site import USERS

if TYPE_CHECKING:
    from random import Random

    from tests.cluster.site import Site

MOST_PENDING = 8
EXITS = "trap 'exit 0' TERM; for i in $(seq {tenths}); do sleep 0.1; done"
STAYS = "trap '' TERM; sleep {seconds}"
PLAIN = "sleep {seconds}"


@dataclass
class Load:
    """Keeps some work of each group waiting, except of those that rest. ``jobs`` are all that were submitted."""

    site: Site
    random: Random
    jobs: dict[str, str] = field(default_factory=dict)
    resting: dict[str, float] = field(default_factory=dict)

    def tick(self, now: float) -> None:
        """Called every few seconds: groups go to rest and come back, and submit up to three jobs."""
        pending = self._pending()
        for group in USERS:
            if now < self.resting.get(group, 0):
                continue
            if self.random.random() < 0.03:
                self.resting[group] = now + self.random.randint(30, 150)
            room = MOST_PENDING - pending.get(group, 0)
            for _ in range(min(room, self.random.randint(0, 3))):
                self._submit(group)

    def _pending(self) -> dict[str, int]:
        out = self.site.cluster.run(["squeue", "-h", "-a", "-t", "PENDING", "-O", "Account"], check=False).out
        words = out.split()
        return {word: words.count(word) for word in words}

    def _submit(self, group: str) -> None:
        r = self.random
        seconds = r.choice((15, 40, 90, 200))
        run = r.choice((PLAIN, PLAIN, PLAIN, EXITS, STAYS)).format(seconds=seconds, tenths=10 * seconds)
        options = ["--no-requeue"] if r.random() < 0.05 else []
        contract = r.choice((None, "0", "5s", "10s", "20s", "30s"))
        ran = self.site.try_submit(group, r.choice((1, 1, 2, 2, 4)), *options, contract=contract, run=run)
        # slurmctld may be away just now
        if ran.status == 0:
            self.jobs[ran.out.strip()] = group
