"""A token that was given for https is not sent where anybody on the way can read it."""

import pytest

from ray_multicluster_scheduler.tasks.wire.sessions import Secret, TokenInTheClear, auth_metadata

TOKEN = Secret("s3cr3t")
CARRIED = [("authorization", "Bearer s3cr3t")]


def carried(token: Secret = TOKEN, address: str = "head.example:10001", *, https: bool) -> object:
    return auth_metadata(token, cluster="a", address=address, over_https=https)


@pytest.fixture(autouse=True)
def _no_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_USE_TLS", raising=False)


def test_it_is_refused_with_what_to_do_and_without_the_token() -> None:
    with pytest.raises(TokenInTheClear, match="RAY_USE_TLS") as refused:
        carried(https=True)
    assert "s3cr3t" not in str(refused.value)
    assert "'a'" in str(refused.value)


def test_it_is_sent_where_ray_encrypts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    assert carried(https=True) == CARRIED


def test_it_is_sent_where_it_leaves_no_machine() -> None:
    assert carried(https=True, address="127.0.0.1:10001") == CARRIED


def test_a_token_that_http_carries_anyway_is_sent() -> None:
    assert carried(https=False) == CARRIED


def test_no_token_needs_nothing() -> None:
    assert carried(Secret(None), https=True) is None


def test_no_log_shows_it() -> None:
    assert "s3cr3t" not in repr(TOKEN)
