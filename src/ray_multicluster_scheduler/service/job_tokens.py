"""Tokens of jobs: the program of a job uses its own token to call the server that submitted the job.

Such a token is computed, not stored: it is the job's number with an HMAC by the key of the store, so every
server on that store can verify it. It stands for the user of the job with the role `submit`, even if that
user has a higher role, and it is valid until the job ends.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import threading

from ray_multicluster_scheduler.environment.redact import JOB_TOKEN_PREFIX
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.service.caller import Caller, Role
from ray_multicluster_scheduler.service.tokens import BELIEVED_S, MOST_REMEMBERED, Authenticator
from ray_multicluster_scheduler.store_ports import JobStore

_TOKEN = re.compile(rf"{JOB_TOKEN_PREFIX}(?P<seq>[1-9][0-9]{{0,17}})_[A-Za-z0-9_-]{{43}}")


class JobTokens:
    """Authenticates the programs of open jobs, and all other callers by `others`."""

    def __init__(self, store: JobStore, clock: Clock, others: Authenticator) -> None:
        self._store = store
        self._clock = clock
        self._others = others
        self._key = store.access.job_key()
        self._lock = threading.Lock()
        #: By number of the job: its token and who that is, or None where no open job is, and until when
        #: that is believed.
        self._known: dict[int, tuple[tuple[str, Caller] | None, float]] = {}

    def token_of(self, job: Job) -> str:
        """Return the token of a job, the same each time.

        The HMAC covers the id and the user too: a restored store could assign a number again.
        """
        said = "\0".join((str(job.seq), job.submission_id, job.spec.user)).encode()
        proof = base64.urlsafe_b64encode(hmac.digest(self._key, said, hashlib.sha256)).rstrip(b"=")
        return f"{JOB_TOKEN_PREFIX}{job.seq}_{proof.decode()}"

    def ready(self, credential: str | None = None) -> bool:
        """Tell whether `authenticate` (or `required`, without a credential) needs no access to the store."""
        parsed = None if credential is None else _TOKEN.fullmatch(credential)
        if parsed is None:
            return self._others.ready(credential)
        with self._lock:
            _, until = self._known.get(int(parsed["seq"]), (None, 0.0))
        return self._clock.monotonic() < until

    def required(self) -> bool:
        """Tell whether callers have to show a token at all."""
        return self._others.required()

    def authenticate(self, credential: str) -> Caller | None:
        """Return who has this token; None: it is no token, or its job has ended."""
        parsed = _TOKEN.fullmatch(credential)
        if parsed is None:
            return self._others.authenticate(credential)
        found = self._look_up(int(parsed["seq"]))
        return found[1] if found and hmac.compare_digest(credential, found[0]) else None

    def _look_up(self, seq: int) -> tuple[str, Caller] | None:
        now = self._clock.monotonic()
        with self._lock:
            known = self._known.get(seq)
        if known is not None and now < known[1]:
            return known[0]
        found = self._read(seq)
        with self._lock:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known[seq] = found, now + BELIEVED_S
        return found

    def _read(self, seq: int) -> tuple[str, Caller] | None:
        # The job of this number, or an earlier one where it is gone: that has another token.
        job = next(iter(self._store.list_jobs(before=seq + 1, limit=1)), None)
        if job is None or job.final:
            return None
        name = job.submission_id
        caller = Caller(user=job.spec.user, role=Role.SUBMIT, token_id=f"job {name}", job=name)
        return self.token_of(job), caller
