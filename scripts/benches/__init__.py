"""The benchmarks. Each module has ``arguments(parser)``, which adds its own options, and ``measure(**options)``,
which returns rows of what, value, unit, target, ok.
"""
