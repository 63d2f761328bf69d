"""What Ray logs about connections, and what of it is of no use to the user."""

from __future__ import annotations

import logging

_SIGTERM = "SIGTERM handler is not set because current thread"
#: Logger, and how its useless message begins: Ray writes it about calls that are all right.
NOISE = {
    "ray.client_builder": "Passing the following kwargs to ray.init() on the server",
    "ray._private.worker": _SIGTERM,
    # The helper process on the cluster says the same, and Ray Client repeats it here.
    "ray.util.client.logsclient": _SIGTERM,
}


def is_useful(record: logging.LogRecord) -> bool:
    """Tell whether a message is none of those."""
    return not record.getMessage().startswith(NOISE[record.name])


def drop_noise() -> None:
    """Keep these messages, and no others, out of the log of this process."""
    for name in NOISE:
        logging.getLogger(name).addFilter(is_useful)


def silence_ray_client() -> None:
    """Have Ray Client log nothing in a process that is not the user's; all other loggers go on.

    What it logs there, such as a session that breaks and mends, would reach the user's output as a worker's.
    """
    drop_noise()
    logging.getLogger("ray.util.client").setLevel(logging.CRITICAL + 1)
    logging.getLogger("ray.util.client.logsclient").addFilter(_nothing)


def _nothing(_record: logging.LogRecord) -> bool:
    return False
