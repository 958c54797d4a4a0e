"""Use cases over ports: sync, evaluate, plan, publish, apply, explain."""
