"""A long run on a real Slurm, with everything going wrong that can: ``scripts/soak``. No part of the tests."""
