"""The benchmarks: each module has a ``measure()`` that returns rows of what, value, unit, target, ok."""
