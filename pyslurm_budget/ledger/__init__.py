"""Facts and decisions in SQL: tables, migrations and the store."""
