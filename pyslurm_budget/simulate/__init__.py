"""A discrete-event Slurm behind the same ports as the real one."""
