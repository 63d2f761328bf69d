"""Tokens: shown once, kept as a digest, refused when they are wrong, expired or revoked."""

import hmac
import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.builders import a_spec
from tests.support.clock import ManualClock

from ray_multicluster_scheduler.environment.redact import REDACTED, redact_env, redact_text
from ray_multicluster_scheduler.errors import Forbidden, InvalidRequest
from ray_multicluster_scheduler.model.access import Quota
from ray_multicluster_scheduler.service import auth as tokens_module
from ray_multicluster_scheduler.service.administration import Administration
from ray_multicluster_scheduler.service.auth import BELIEVED_S, USED_EVERY_S, Tokens
from ray_multicluster_scheduler.service.caller import Caller, Role
from ray_multicluster_scheduler.store import Store, open_memory_store, open_store

ROOT = Caller(user="root", role=Role.ADMIN)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_memory_store()
    yield opened
    opened.close()


@pytest.fixture
def tokens(store: Store, clock: ManualClock) -> Tokens:
    return Tokens(store.access, clock)


def made(tokens: Tokens, user: str = "ann", role: Role = Role.SUBMIT, expires_s: float | None = None) -> str:
    return tokens.create(user, role, expires_s=expires_s, by=ROOT).token


def administration(tokens: Tokens, store: Store, caller: Caller = ROOT, **quotas: Quota) -> Administration:
    return Administration(tokens, store, caller, quotas=quotas, clock=tokens._clock)


def test_who_has_a_token_is_recognised_by_it(tokens: Tokens) -> None:
    secret = made(tokens, "ann", Role.OPERATE)

    caller = tokens.authenticate(secret)

    assert caller is not None
    assert (caller.user, caller.role, caller.token_id) == ("ann", Role.OPERATE, secret.split("_")[1])
    assert re.fullmatch(r"raymc_[0-9a-f]{10}_[A-Za-z0-9_-]{43}", secret)


@pytest.mark.parametrize(
    "credential",
    ["", "raymc_", "x", "raymc_0123456789_" + "A" * 43, "raymc_0123456789_" + "é" * 43, "\0", "\ud800"],
)
def test_anything_else_is_nobody(tokens: Tokens, credential: str) -> None:
    made(tokens)

    assert tokens.authenticate(credential) is None


def test_a_token_with_one_letter_changed_or_added_is_nobody(tokens: Tokens) -> None:
    secret = made(tokens)
    last = "A" if secret[-1] != "A" else "B"

    assert tokens.authenticate(secret[:-1] + last) is None
    assert tokens.authenticate(secret + "A") is None
    assert tokens.authenticate(f" {secret}") is None


def test_digests_are_compared_in_constant_time(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, compared, real = made(tokens), [], hmac.compare_digest

    def compare(left: str, right: str) -> bool:
        compared.append((left, right))
        return real(left, right)

    monkeypatch.setattr(tokens_module.hmac, "compare_digest", compare)
    assert tokens.authenticate(secret)
    assert tokens.authenticate("raymc_0123456789_" + "A" * 43) is None
    assert tokens.authenticate("nonsense") is None

    assert len(compared) == 3  # whoever is unknown takes as long
    assert all(secret not in pair for pair in compared)


def test_an_expired_token_is_nobody_from_its_last_second_on(tokens: Tokens, clock: ManualClock) -> None:
    secret = made(tokens, expires_s=60.0)
    clock.advance(59.9)
    assert tokens.authenticate(secret)
    clock.advance(0.1)

    assert tokens.authenticate(secret) is None


def test_a_revoked_token_is_refused_at_once_here_and_soon_elsewhere(store: Store, clock: ManualClock) -> None:
    here, elsewhere = Tokens(store.access, clock), Tokens(store.access, clock)
    secret = made(here)
    assert here.authenticate(secret)
    assert elsewhere.authenticate(secret)  # and now it is remembered there
    assert elsewhere.authenticate(secret)

    here.revoke(secret.split("_")[1], by=ROOT)

    assert here.authenticate(secret) is None
    clock.advance(BELIEVED_S)
    assert elsewhere.authenticate(secret) is None


def test_a_token_that_another_process_made_counts(store: Store, clock: ManualClock) -> None:
    here, elsewhere = Tokens(store.access, clock), Tokens(store.access, clock)
    assert not elsewhere.required()
    secret = made(here)
    assert here.required()
    clock.advance(BELIEVED_S)

    assert elsewhere.required()
    assert elsewhere.authenticate(secret)


def test_the_door_stays_closed_when_the_last_token_is_revoked(store: Store, clock: ManualClock) -> None:
    tokens = Tokens(store.access, clock)
    tokens.revoke(made(tokens).split("_")[1], by=ROOT)

    assert tokens.required()
    assert Tokens(store.access, clock).required()


def test_the_last_use_is_noted_to_the_hour(tokens: Tokens, store: Store, clock: ManualClock) -> None:
    secret = made(tokens)
    assert tokens.authenticate(secret)
    (token,) = store.access.tokens()

    assert token.used_at == clock.now() // USED_EVERY_S * USED_EVERY_S
    clock.advance(2 * USED_EVERY_S)
    assert tokens.authenticate(secret)
    assert store.access.tokens()[0].used_at == clock.now() // USED_EVERY_S * USED_EVERY_S


def test_the_secret_is_nowhere_in_the_files_of_the_store_nor_in_a_log(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    store = open_store(tmp_path / "store")
    tokens = Tokens(store.access, clock)
    new = tokens.create("ann", Role.SUBMIT, expires_s=None, by=ROOT)
    assert tokens.authenticate(new.token)
    secret = new.token[-43:]
    stored = store.access.token(new.id)
    kept = b"".join(path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())
    store.close()
    kept += b"".join(path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())

    assert new.id.encode() in kept
    assert secret.encode() not in kept
    assert secret not in caplog.text
    assert secret not in repr(new)
    assert stored is not None
    assert stored.digest not in repr(stored)


def test_a_token_is_hidden_wherever_it_would_be_shown(tokens: Tokens) -> None:
    secret = made(tokens)
    shown = f"raymc_{secret.split('_')[1]}_{REDACTED}"

    assert redact_text(f"curl -H 'Authorization: Bearer {secret}' x") == (
        f"curl -H 'Authorization: Bearer {shown}' x"
    )
    assert redact_env({"env_vars": {"NOTE": secret}, "pip": [f"x @ {secret}"]}) == {
        "env_vars": {"NOTE": shown},
        "pip": [f"x @ {shown}"],
    }


def test_only_administrators_manage_tokens(tokens: Tokens, store: Store) -> None:
    for role in (Role.READ, Role.SUBMIT, Role.OPERATE):
        with pytest.raises(Forbidden, match="needs the role 'admin'"):
            administration(tokens, store, replace(ROOT, role=role))


def test_what_was_done_is_in_the_audit_trail_with_who_did_it(tokens: Tokens, store: Store) -> None:
    admin = administration(tokens, store, replace(ROOT, token_id="t9", address="10.1.1.1"))
    new = admin.create_token("ann", "READ", expires_s=60.0)
    admin.revoke_token(new.id)

    entries = admin.audit().entries

    assert [(entry.action, entry.target) for entry in entries] == [
        ("token revoke", new.id),
        ("token create", f"{new.id} (ann, read)"),
    ]
    assert {(entry.user, entry.token_id, entry.address) for entry in entries} == {("root", "t9", "10.1.1.1")}
    assert new.token not in str(entries)
    assert "digest" not in str(admin.list_tokens())


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_the_audit_trail_is_read_in_pages(tokens: Tokens, store: Store, limit: int) -> None:
    admin = administration(tokens, store)
    made_ids = [admin.create_token("ann", "read").id for _ in range(6)]
    found, cursor = [], None
    while True:
        page = admin.audit(limit=limit, cursor=cursor)
        found += [entry.target.split()[0] for entry in page.entries]
        cursor = page.next_cursor
        if cursor is None:
            break

    assert found == made_ids[::-1]


def test_users_are_those_with_a_valid_token_a_quota_or_open_jobs(
    tokens: Tokens, store: Store, clock: ManualClock
) -> None:
    for role in (Role.ADMIN, Role.READ, Role.READ):
        made(tokens, "ann", role)
    made(tokens, "gone", expires_s=1.0)
    clock.advance(2.0)
    store.jobs.add(
        [(name, a_spec(user="bob", requirements={"CPU": 2.0})) for name in ("one", "two")], now=clock.now()
    )
    all_get = Quota(jobs=9)
    admin = administration(tokens, store, **{"*": all_get, "cy": Quota(resources={"GPU": 1.0})})

    ann, bob, cy = admin.users()

    assert (ann.user, ann.roles, ann.tokens) == ("ann", ("read", "admin"), 3)
    assert (ann.open_jobs, ann.claimed, ann.quota_jobs) == (0, {}, 9)
    assert (bob.user, bob.roles, bob.tokens, bob.open_jobs, bob.claimed) == ("bob", (), 0, 2, {"CPU": 4.0})
    assert (cy.user, cy.quota_jobs, cy.quota_resources) == ("cy", None, {"GPU": 1.0})


def test_bad_arguments_are_refused_by_name(tokens: Tokens, store: Store) -> None:
    admin = administration(tokens, store)
    with pytest.raises(InvalidRequest, match="there is no role 'boss'; the roles are read, read-all, submit"):
        admin.create_token("ann", "boss")
    with pytest.raises(InvalidRequest, match="user must be a text"):
        admin.create_token(" ", "read")
    for expires_s in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(InvalidRequest, match="expires after more than 0 seconds"):
            admin.create_token("ann", "read", expires_s=expires_s)
    with pytest.raises(InvalidRequest, match="limit"):
        admin.audit(limit=0)
    with pytest.raises(InvalidRequest, match="none of ours"):
        admin.audit(cursor="x")
    with pytest.raises(InvalidRequest, match="no token has the id"):
        admin.revoke_token("gone")
