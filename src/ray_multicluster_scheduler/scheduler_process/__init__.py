"""The process that schedules: the engine, and when it ends."""
