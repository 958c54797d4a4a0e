"""Tables, parsable text and JSON for people and programs."""
