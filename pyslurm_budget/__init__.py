"""Rolling GPU-hour budgets, protected runs and minimum-runtime contracts for Slurm."""

__version__ = "0.1.0"
