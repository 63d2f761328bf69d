"""Submits jobs to any of several servers, each again and again under the same id until it has its answer."""

import json
import os
import random
import sys
import time
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

TOLD = json.loads(os.environ["SUBMITTER"])
#: Refusals that say: not now. 409: an earlier try was accepted, and its answer lost.
AGAIN, DONE = {500, 502, 503, 504}, 409
TRIES = 2000

refused: list[str] = []


def submitted(server: str, job: dict[str, Any]) -> bool:
    body = json.dumps(job).encode()
    request = Request(f"{server}/api/v1/jobs", body, {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=60):
            return True
    except HTTPError as problem:
        with problem:
            text = problem.read().decode()
        if problem.code == DONE:
            return True
        if problem.code not in AGAIN:
            raise RuntimeError(text) from None
        refused.append(f"{problem.code} {json.loads(text).get('error_type', '')}")
    except (URLError, ConnectionError, TimeoutError) as problem:
        refused.append(type(problem).__name__)
    return False


def main() -> None:
    chance, accepted = random.Random(TOLD["name"]), []
    for number in range(TOLD["jobs"]):
        name = f"{TOLD['name']}-{number}"
        job = {"entrypoint": f"echo ran >> {TOLD['runs']}/{name}", "submission_id": name}
        for _ in range(TRIES):
            if submitted(chance.choice(TOLD["servers"]), job):
                accepted.append(name)
                break
            time.sleep(0.2)
        time.sleep(chance.random() * 2 * TOLD["pause_s"])
    json.dump({"accepted": accepted, "refused": refused}, sys.stdout)


main()
