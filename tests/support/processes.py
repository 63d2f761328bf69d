"""What runs on this machine, read from /proc."""

from contextlib import suppress
from pathlib import Path


def processes() -> dict[int, str]:
    """The process id and the command line of every process that still runs."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended while we looked
        found[int(path.parent.name)] = line
    return found


def parent_of(pid: int | None) -> int | None:
    """Return the parent of a process, if there is such a process."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


def command_lines() -> list[str]:
    """The command line of every process that still runs."""
    return list(processes().values())


def sessions_of(gcs_address: str) -> list[int]:
    """The processes that serve the Ray Client sessions of a cluster."""
    return [
        pid
        for pid, line in processes().items()
        if "-m ray.util.client.server" in line and "specific-server" in line and f"={gcs_address} " in line
    ]


def specific_servers(*gcs_addresses: str) -> list[str]:
    """The Ray Client helper processes of these clusters: one would be one too many."""
    return [
        line
        for line in command_lines()
        if "ray.util.client.server" in line
        and "specific-server" in line
        and any(address in line for address in gcs_addresses)
    ]
