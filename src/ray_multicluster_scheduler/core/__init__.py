"""What the scheduler decides: events and snapshots in, decisions out. No I/O, no clock, no asyncio."""
