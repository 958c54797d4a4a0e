"""The commands: one file a command group, and the wiring."""
