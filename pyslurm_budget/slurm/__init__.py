"""The edge to Slurm: its commands, and nothing else."""
