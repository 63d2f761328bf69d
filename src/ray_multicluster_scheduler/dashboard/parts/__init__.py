"""What pages are made of: chips, bars, tables, charts, the log."""
