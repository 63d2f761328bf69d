"""Filters for Ray's log messages about connections that are of no use to the user."""

from __future__ import annotations

import logging

_SIGTERM = "SIGTERM handler is not set because current thread"
#: Logger, and the beginning of its useless message: Ray logs it about correct calls.
NOISE = {
    "ray.client_builder": "Passing the following kwargs to ray.init() on the server",
    "ray._private.worker": _SIGTERM,
    # The helper process on the cluster logs the same, and Ray Client repeats it here.
    "ray.util.client.logsclient": _SIGTERM,
}


def is_useful(record: logging.LogRecord) -> bool:
    """Tell whether a message is not noise."""
    return not record.getMessage().startswith(NOISE[record.name])


def drop_noise() -> None:
    """Drop the messages in `NOISE`, and no others, in this process."""
    for name in NOISE:
        logging.getLogger(name).addFilter(is_useful)


def silence_ray_client() -> None:
    """Disable the loggers of Ray Client, and no others: for a process that is not the user's.

    Its messages, for example about reconnects, would reach the user's output as those of a worker.
    """
    drop_noise()
    logging.getLogger("ray.util.client").setLevel(logging.CRITICAL + 1)
    logging.getLogger("ray.util.client.logsclient").addFilter(_nothing)


def _nothing(_record: logging.LogRecord) -> bool:
    return False
