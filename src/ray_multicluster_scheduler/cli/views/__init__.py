"""What the commands show: tables, lines and progress, for a terminal or a pipe."""
