"""Tokens of jobs: each is for one open job, with its user and the role `submit`, and proved by the store."""

import hmac
import re
from pathlib import Path

import pytest
from tests.support.builders import NOW, a_job, a_spec
from tests.support.clock import ManualClock
from tests.support.leader import WAY, Leader
from tests.unit.service.test_tokens import ROOT, made

from ray_multicluster_scheduler.environment.redact import REDACTED, redact_text
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service import auth as job_tokens_module
from ray_multicluster_scheduler.service.auth import BELIEVED_S, JobTokens, Tokens
from ray_multicluster_scheduler.service.caller import Caller, Role
from ray_multicluster_scheduler.store import Store, open_memory_store, open_store

#: Jobs, with their users, that the copy of a store has not heard of.
LOST = [("other", "bob"), ("job", "ann")]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def people(store: Store, clock: ManualClock) -> Tokens:
    return Tokens(store.access, clock)


@pytest.fixture
def tokens(store: Store, clock: ManualClock, people: Tokens) -> JobTokens:
    return JobTokens(store, clock, people)


def test_the_program_of_a_job_is_its_user_with_the_role_submit(tokens: JobTokens, leader: Leader) -> None:
    leader.add("odd.id-_", JobState.RUNNING, user="ann müller")

    token = tokens.token_of(leader.store.jobs.get("odd.id-_"))

    assert re.fullmatch(r"raymc_job_1_[A-Za-z0-9_-]{43}", token)
    assert tokens.authenticate(token) == Caller(
        user="ann müller", role=Role.SUBMIT, token_id="job odd.id-_", job="odd.id-_"
    )


def test_a_forged_proof_and_another_jobs_proof_are_nobody(tokens: JobTokens, leader: Leader) -> None:
    first, second = leader.add("first"), leader.add("second")
    token, other = tokens.token_of(first), tokens.token_of(second)
    last = "A" if token[-1] != "A" else "B"

    assert tokens.authenticate(token)
    assert tokens.authenticate(token[:-1] + last) is None
    assert tokens.authenticate(token + "A") is None
    assert tokens.authenticate(f"raymc_job_{second.seq}_{token[-43:]}") is None
    assert tokens.authenticate(f"raymc_job_0{first.seq}_{token[-43:]}") is None
    assert tokens.authenticate(other)


@pytest.mark.parametrize(
    "credential",
    [
        "raymc_job_",
        "raymc_job_1",
        "raymc_job_1_",
        "raymc_job_99_" + "A" * 43,
        "raymc_job_" + "9" * 18 + "_" + "A" * 43,
        "raymc_job_" + "9" * 19 + "_" + "A" * 43,
        "raymc_job_-1_" + "A" * 43,
        "raymc_job_١_" + "A" * 43,
        "raymc_job_1_" + "é" * 43,
        "raymc_job_1_" + "-" * 43,
    ],
)
def test_anything_else_is_nobody(tokens: JobTokens, leader: Leader, credential: str) -> None:
    leader.add("job", JobState.RUNNING)

    assert tokens.authenticate(credential) is None


def test_proofs_are_compared_in_constant_time(
    tokens: JobTokens, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, compared, real = tokens.token_of(leader.add("job")), [], hmac.compare_digest

    def compare(left: str, right: str) -> bool:
        compared.append((left, right))
        return real(left, right)

    monkeypatch.setattr(job_tokens_module.hmac, "compare_digest", compare)
    assert tokens.authenticate(token)
    assert tokens.authenticate("raymc_job_1_" + "A" * 43) is None

    assert len(compared) == 2


@pytest.mark.parametrize("state", list(JobState))
def test_it_ends_with_the_job(tokens: JobTokens, leader: Leader, clock: ManualClock, state: JobState) -> None:
    token = tokens.token_of(leader.add("job"))
    assert tokens.authenticate(token)
    leader.move("job", *WAY[state])
    clock.advance(BELIEVED_S)

    ended = state in {JobState.SUCCEEDED, JobState.FAILED, JobState.STOPPED}
    assert (tokens.authenticate(token) is None) is ended


def test_a_job_that_was_deleted_has_none_and_the_next_of_its_id_has_another(
    tokens: JobTokens, leader: Leader, clock: ManualClock
) -> None:
    leader.add("job", JobState.SUCCEEDED, user="ann")
    former = tokens.token_of(leader.store.jobs.get("job"))
    leader.store.retention.delete(["job"])
    clock.advance(BELIEVED_S)
    leader.add("job", JobState.RUNNING, user="bob")

    assert tokens.authenticate(former) is None
    assert tokens.token_of(leader.store.jobs.get("job")) != former


def test_a_number_that_comes_again_in_a_restored_store_does_not_open_it(
    tokens: JobTokens, leader: Leader
) -> None:
    job = leader.add("job", user="bob")
    lost = [a_job(name, seq=job.seq, spec=a_spec(user=user)) for name, user in LOST]

    assert tokens.authenticate(tokens.token_of(job))
    assert [tokens.authenticate(tokens.token_of(each)) for each in lost] == [None, None]


def test_every_server_of_a_store_knows_it_and_no_other(tmp_path: Path, clock: ManualClock) -> None:
    directory = tmp_path / "store"
    here, there, elsewhere = open_store(directory), open_store(directory), open_memory_store()
    for store in (here, elsewhere):
        store.jobs.add([("job", a_spec())], now=NOW)

    def tokens_of(store: Store) -> JobTokens:
        return JobTokens(store, clock, Tokens(store.access, clock))

    token = tokens_of(here).token_of(here.jobs.get("job"))
    assert tokens_of(there).authenticate(token)
    assert tokens_of(elsewhere).authenticate(token) is None
    for store in (here, there, elsewhere):
        store.close()


def test_tokens_of_people_are_theirs_as_before(tokens: JobTokens, people: Tokens) -> None:
    assert not tokens.required()
    assert tokens.ready()
    secret = made(people, "root", Role.ADMIN)

    assert tokens.required()
    assert not tokens.ready(secret)
    caller = tokens.authenticate(secret)
    assert caller is not None
    assert (caller.user, caller.role, caller.job) == ("root", Role.ADMIN, None)
    people.revoke(secret.split("_")[1], by=ROOT)
    assert tokens.authenticate(secret) is None
    assert tokens.authenticate("nonsense") is None


def test_the_store_is_asked_once_a_second(tokens: JobTokens, leader: Leader, clock: ManualClock) -> None:
    token = tokens.token_of(leader.add("job"))

    assert not tokens.ready(token)
    assert tokens.authenticate(token)
    assert tokens.ready(token)
    clock.advance(BELIEVED_S)
    assert not tokens.ready(token)


def test_it_is_hidden_wherever_text_is_shown(tokens: JobTokens, leader: Leader) -> None:
    token = tokens.token_of(leader.add("job"))

    assert redact_text(f"{{'RAY_MULTICLUSTER_TOKEN': '{token}'}}") == (
        f"{{'RAY_MULTICLUSTER_TOKEN': 'raymc_job_1_{REDACTED}'}}"
    )
    assert redact_text(f"cut short: {token[:-10]}") == f"cut short: raymc_job_1_{REDACTED}"
