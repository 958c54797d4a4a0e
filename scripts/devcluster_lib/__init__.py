"""A throw-away real Slurm cluster on loopback, from Debian's packages."""
