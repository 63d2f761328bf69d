"""Memory for the buffers that bytes pass through."""

from __future__ import annotations

#: Larger than any buffer of a connection, and small enough for glibc to learn from it (below 32 MiB).
LARGE = 16 * 2**20


def keep_freed_memory() -> None:
    """Let the C library keep the memory of freed buffers for the next ones.

    Each received buffer is some hundred kilobytes. glibc would return such memory to the system and ask for
    it again, and the new pages cost more than all else that the relay does with the bytes: three times the
    processor time in bulk transfers. The first large block that is freed raises its threshold (`mallopt(3)`,
    M_MMAP_THRESHOLD). Up to 32 MiB stay with the process. Other C libraries do not mind.
    """
    bytes(LARGE)
