-- For luacheck: what slurmctld gives to the script, and what the script defines for it.
std = "min"
max_line_length = 130
read_globals = { "slurm", "SBUDGET_TABLE_PATH", "SBUDGET_AS_MODULE" }
globals = { "slurm_job_submit", "slurm_job_modify", "sbudget_job_submit", "sbudget_job_modify", "sbudget_table_fault" }
