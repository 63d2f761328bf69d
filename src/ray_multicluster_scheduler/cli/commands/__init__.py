"""The commands of `raymc`, one module per command or group of commands."""
