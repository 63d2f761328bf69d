"""What runs on this machine, read from /proc."""

from pathlib import Path


def command_lines() -> list[str]:
    """The command line of every process that still runs."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # it ended while we looked
    return lines


def specific_servers(*gcs_addresses: str) -> list[str]:
    """The Ray Client helper processes of these clusters: one would be one too many."""
    return [
        line
        for line in command_lines()
        if "ray.util.client.server" in line
        and "specific-server" in line
        and any(address in line for address in gcs_addresses)
    ]
