"""Under which name a process leads."""

from __future__ import annotations

import os
import socket
import uuid


def holder_name() -> str:
    """Return a name for the lease that tells people which process leads."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
