"""What goes wrong: nodes that drain and hang, controllers that are killed, daemons that restart."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.cluster.devcluster import BIN

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.cluster.site import Site


@dataclass
class Controller:
    """`reconcile --apply --every 1s`, which can be killed. ``log`` takes what all of them say."""

    site: Site
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start one."""
        argv = [str(BIN / "sbudget"), "--config", str(self.site.config), "reconcile", "--apply", "--every", "1s"]
        env = dict(os.environ) | dict(self.site.cluster.env)
        with (self.site.folder / "controller.log").open("ab") as log:
            self.process = subprocess.Popen(argv, env=env, stdout=log, stderr=log)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it, politely or not."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(timeout=120)
        self.process = None


@dataclass
class Accidents:
    """One accident at a time, each put right again after a while. ``log`` has (time, kind) of each."""

    site: Site
    random: Random
    controller: Controller
    nodes: tuple[str, ...]
    log: list[tuple[int, str]] = field(default_factory=list)
    _due: float = 0
    _undo: Callable[[], None] | None = None

    def tick(self, now: float) -> None:
        """Put the last one right when its time is over, or let the next one happen."""
        if now < self._due:
            return
        if self._undo is not None:
            undo, self._undo = self._undo, None
            undo()
            self._due = now + self.random.randint(5, 15)
            return
        kinds = (self._drain, self._drain, self._hang, self._kill, self._kill, self._slurmctld, self._slurmdbd)
        what = self.random.choice(kinds)
        self.log.append((int(time.time()), what.__name__.strip("_")))
        seconds = what()
        self._due = time.monotonic() + seconds

    def over(self) -> None:
        """Put everything right."""
        if self._undo is not None:
            self._undo()
        self._undo = None

    def _drain(self) -> float:
        """An operator drains a node, and resumes it later."""
        node = self.random.choice(self.nodes)
        self._node(node, "state=drain", "reason=fan")
        self._undo = lambda: self._node(node, "state=resume")
        return self.random.randint(10, 40)

    def _node(self, node: str, *words: str) -> None:
        self.site.cluster.run(["scontrol", "update", f"nodename={node}", *words], check=False)

    def _hang(self) -> float:
        """slurmd answers nothing for a while: what completes there does not end."""
        node = self.random.choice(self.nodes)
        pid = int((self.site.cluster.folder / "run" / f"{node}.id").read_text().split()[0])
        os.kill(pid, signal.SIGSTOP)
        self._undo = lambda: os.kill(pid, signal.SIGCONT)
        return self.random.randint(5, 20)

    def _kill(self) -> float:
        """The controller dies, mostly in the middle of a cycle; its lease is not given back."""
        time.sleep(self.random.random())
        self.controller.end(signal.SIGKILL)
        self._undo = self.controller.start
        return self.random.randint(0, 15)

    def _slurmctld(self) -> float:
        self.site.cluster.daemon("restart", "slurmctld")
        return 5

    def _slurmdbd(self) -> float:
        """slurmdbd is away for some seconds: nobody is displaced meanwhile."""
        self.site.cluster.daemon("stop", "slurmdbd")
        self._undo = lambda: self.site.cluster.daemon("start", "slurmdbd")
        return self.random.randint(3, 15)
