"""Checks the submit plugin's script before slurmctld sees it: its syntax, and a dry run in a Lua of this host.

slurmctld does not start with a script that it cannot load, and up to 25.11 accepts every job of one that fails. The
dry run gives the script a ``slurm`` table as Slurm 22.05 has it (which knows the fewest names), and submits and
changes jobs that say nothing, little and nonsense.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from pyslurm_budget.errors import SlurmSetupError

if TYPE_CHECKING:
    from pyslurm_budget.slurm.run import Runner

INTERPRETERS = ("lua5.1", "lua5.3", "lua5.4", "lua5.2", "lua")
COMPILERS = ("luac5.1", "luac5.3", "luac5.4", "luac")
_BEFORE = """\
slurm = { SUCCESS = 0, ERROR = -1, FAILURE = -1, NO_VAL = 4294967294, NO_VAL16 = 65534, INFINITE = 4294967295 }
local function logged(form, ...)
    local text = string.format(form, ...)
    if text:find("left as it is", 1, true) then error(text, 0) end
end
for _, name in ipairs({ "error", "info", "verbose", "debug", "user" }) do slurm["log_" .. name] = logged end
local text = [====[
"""
_AFTER = """]====]
local script, fault = (loadstring or load)(text, "=job_submit.lua")
if not script then error(fault, 0) end
script()
local jobs = {
    {},
    { account = "a", user_name = "b", qos = "c", partition = "d", tres_per_job = "gres/gpu:1", script = "" },
    { default_account = "a", default_qos = "c", comment = "min-runtime=soon", tres_per_node = "gpu:x", requeue = -1 },
}
for _, job in ipairs(jobs) do
    if type((slurm_job_submit(job, {}, 1000))) ~= "number" then error("a submission got no number back", 0) end
    local code = slurm_job_modify(job, { job_state = 0, qos = "c" }, {}, 1000)
    if type(code) ~= "number" then error("a change got no number back", 0) end
end
"""


def rehearse(text: str, runner: Runner) -> str:
    """Run the script's text once, or compile it where there is no Lua; raises SlurmSetupError with what was wrong.

    Returns a note for people on what could not be checked, empty for nothing.
    """
    interpreter = next((name for name in INTERPRETERS if shutil.which(name)), None)
    if interpreter is not None:
        _run(runner, interpreter, "-", stdin=_BEFORE + text + _AFTER)
        return ""
    compiler = next((name for name in COMPILERS if shutil.which(name)), None)
    if compiler is None:
        return " (not checked: no lua or luac on this host)"
    _run(runner, compiler, "-p", "-", stdin=text)
    return " (compiled, not tried: no lua on this host)"


def _run(runner: Runner, *command: str, stdin: str) -> None:
    answer = runner.run(*command, stdin=stdin)
    if answer.status:
        raise SlurmSetupError(f"the plugin was not installed: {command[0]} says {answer.err.strip()}")
