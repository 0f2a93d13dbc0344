"""What came out, for people: figures, tables, one HTML page, and a DuckDB catalogue. Needs neither torch nor lerobot."""
