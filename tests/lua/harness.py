"""Runs the submit plugin in a real Lua, with a ``slurm`` table that behaves as slurmctld's does."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parents[2] / "slurm_conf" / "job_submit.lua"
VERSIONS = ("lua51", "lua52", "lua53", "lua54")
NO_VAL, INFINITE, NO_VAL16 = 4294967294, 4294967295, 65534
CLUSTER = "alpha"

# The names that 22.05 exports; 23.02 and later export the whole error table.
NAMES_22_05 = {"ACCESS_DENIED": 2002, "ACCOUNTING_POLICY": 2050, "INVALID_TIME_LIMIT": 2051}
NAMES_24_11 = NAMES_22_05 | {"INVALID_QOS": 2066, "JOB_NOT_PENDING": 2073}

# As in slurmctld: a nil argument makes the formatting raise, which ends the script's function.
SLURM = """
local said, logged = {}, {}
local function wrapper(into)
  return function(fmt, ...)
    for i = 1, select("#", ...) do
      if select(i, ...) == nil then error("bad argument #" .. (i + 1) .. " to 'format'") end
    end
    into[#into + 1] = string.format(fmt, ...)
  end
end
slurm = { SUCCESS = 0, ERROR = -1, FAILURE = -1, NO_VAL = 4294967294, NO_VAL16 = 65534, INFINITE = 4294967295 }
slurm.CLUSTER_NAME = CLUSTER
slurm.log_user = wrapper(said)
for _, name in ipairs({ "error", "info", "verbose", "debug", "debug2", "debug3", "debug4" }) do
  slurm["log_" .. name] = wrapper(logged)
end
now = 0
os.time = function() return now end
return said, logged
"""


class Plugin:
    """One script in one Lua. ``now`` is slurmctld's clock."""

    def __init__(
        self,
        version: str,
        table: Path,
        *,
        names: dict[str, int] = NAMES_22_05,
        script: Path = SCRIPT,
        now: int = 0,
        before: str = "",
    ) -> None:
        module = importlib.import_module(f"lupa.{version}")
        self.lua: Any = module.LuaRuntime(unpack_returned_tuples=True, encoding="utf-8")
        self.globals: Any = self.lua.globals()
        self.globals.CLUSTER = CLUSTER
        self.said, self.logged = self.lua.execute(SLURM)
        for name, value in names.items():
            self.globals.slurm["ESLURM_" + name] = value
        self.table = table
        self.globals.SBUDGET_TABLE_PATH = str(table)
        self.now = now
        if before:
            self.lua.execute(before)
        self.load(script)

    def load(self, script: Path = SCRIPT) -> None:
        """Load the script anew: a reload forgets everything, as a new lua_State does."""
        self.lua.execute(script.read_text(encoding="utf-8"))

    @property
    def now(self) -> int:
        return int(self.globals.now)

    @now.setter
    def now(self, value: int) -> None:
        self.globals.now = value

    def submit(self, job: Any) -> tuple[int, str]:
        """The return code and what the user was told; ``job`` (a Lua table) is changed as slurmctld's would be."""
        return self._call(self.globals.slurm_job_submit, job, self.lua.table(), 1000)

    def modify(self, job: Any, record: Any, uid: int = 1000) -> tuple[int, str]:
        return self._call(self.globals.slurm_job_modify, job, record, self.lua.table(), uid)

    def _call(self, function: Any, *args: Any) -> tuple[int, str]:
        self.clear(self.said)
        code = function(*args)
        assert isinstance(code, (int, float)), f"returned {code!r}: slurmctld would take it as success"
        return int(code), "\n".join(self.said.values())

    def clear(self, table: Any) -> None:
        for key in list(table.keys()):
            table[key] = None

    def log(self) -> list[str]:
        """What was logged since the last look."""
        found = [str(line) for line in self.logged.values()]
        self.clear(self.logged)
        return found

    def job(self, **fields: Any) -> Any:
        """A batch job's job_desc: what is not given is not set, in slurmctld's way."""
        unset = {
            "user_name": "alice",
            "account": "pa",
            "script": "#!/bin/sh\n",
            "time_limit": NO_VAL,
            "min_nodes": NO_VAL,
            "max_nodes": NO_VAL,
            "num_tasks": NO_VAL,
            "min_cpus": NO_VAL,
            "priority": NO_VAL,
            "site_factor": NO_VAL,
            "het_job_offset": NO_VAL,
            "cpus_per_task": NO_VAL16,
            "ntasks_per_node": NO_VAL16,
            "ntasks_per_tres": NO_VAL16,
            "ntasks_per_gpu": NO_VAL16,
            "sockets_per_node": NO_VAL16,
            "pn_min_cpus": NO_VAL16,
            "shared": NO_VAL16,
            "requeue": NO_VAL16,
            "immediate": 0,
            "begin_time": 0,
            "cron_job": False,
        }
        return self.lua.table_from({k: v for k, v in {**unset, **fields}.items() if v is not None})

    def record(self, **fields: Any) -> Any:
        """A pending job's record, as slurm_job_modify gets it."""
        who = {"job_id": 7, "job_state": 0, "user_name": "alice", "account": "pa", "qos": "backed"}
        what = {"partition": "gpu", "time_limit": 600, "min_nodes": 1, "max_nodes": 1}
        return self.lua.table_from({**who, **what, **fields})

    def change(self, **fields: Any) -> Any:
        """An update's job_desc: only what is given is set."""
        return self.job(**{"user_name": None, "account": None, "script": None, **fields})
