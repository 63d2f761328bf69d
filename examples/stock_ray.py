"""Ray's own client, unchanged: behind the address of a server are all clusters.

It starts a server for itself; with `python stock_ray.py http://server:8700` it uses yours.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import urlopen

from ray.job_submission import JobStatus, JobSubmissionClient


@contextmanager
def a_server() -> Iterator[str]:
    """Run `raymc serve` on a free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen(["raymc", "serve", "--port", str(port)], stdout=subprocess.DEVNULL) as server:
        try:
            wait_for(f"http://127.0.0.1:{port}", server)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    """Wait until the server answers as a Ray cluster does."""
    while server.poll() is None:
        try:
            with urlopen(f"{address}/api/version", timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("the server has ended")


def submit(address: str) -> None:
    """Submit a job with Ray's client; the key of the metadata is an option of ours."""
    client = JobSubmissionClient(address)
    job = client.submit_job(
        entrypoint="echo hello from $RAY_MULTICLUSTER_CLUSTER", metadata={"raymc.cpus": "2"}
    )
    while client.get_job_status(job) not in {JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.STOPPED}:
        time.sleep(0.2)
    print(client.get_job_status(job), client.get_job_logs(job), sep="\n")


if len(sys.argv) > 1:
    submit(sys.argv[1])
else:
    with a_server() as own:
        submit(own)
