"""Options of the commands: how they are declared, how values are read, and how a shell completes them."""
