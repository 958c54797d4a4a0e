"""Pure rules: functions of a snapshot and a time. No clock, no I/O, no floats in a decision."""
