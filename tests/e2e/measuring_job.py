"""A job that keeps its own journal, outside of every system under test: start, a sign of life often, end.

measuring_job.py JOURNAL SECONDS_OF_ATTEMPT_1 [SECONDS_OF_FURTHER_ATTEMPTS]
"""

import os
import sys
import time

SIGN_OF_LIFE_S = 0.2
JOB = os.environ["RAY_MULTICLUSTER_SUBMISSION_ID"]
ATTEMPT = int(os.environ["RAY_MULTICLUSTER_ATTEMPT"])


def note(what: str) -> None:
    """Append one line that survives whatever happens next."""
    journal = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(journal, f"{what} {JOB} {ATTEMPT} {time.time()}\n".encode())
    os.fsync(journal)
    os.close(journal)


if __name__ == "__main__":
    note("start")
    seconds = [float(each) for each in sys.argv[2:]]
    ends_at = time.monotonic() + seconds[min(ATTEMPT, len(seconds)) - 1]
    while time.monotonic() < ends_at:
        note("alive")
        time.sleep(SIGN_OF_LIFE_S)
    note("end")
