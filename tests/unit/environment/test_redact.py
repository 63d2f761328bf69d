"""Secrets do not show: not in an environment, not in a text."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ray_multicluster_scheduler.environment.redact import (
    REDACTED,
    GrowingText,
    is_secret_name,
    redact_env,
    redact_text,
    secrets_of,
)

#: A busy machine is no finding.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN", "GITHUB_TOKEN", "AWS_SESSION_TOKEN", "AUTHTOKEN", "accessToken", "token",
        "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "CLIENTSECRET", "DB_PASSWORD", "PGPASSWORD", "DB_PASS",
        "DB_PWD", "SSH_PASSPHRASE", "OPENAI_API_KEY", "APIKEY", "apiKey", "STRIPE_KEY", "PRIVATE_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS", "BASIC_AUTH", "SESSION_COOKIE", "db-passwd",
    ],
)  # fmt: skip
def test_a_name_that_tells_of_a_secret_is_recognised(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "TOKENIZERS_PARALLELISM", "MAX_TOKENS", "KEYBOARD", "KEY_COUNT", "PWD", "OLDPWD", "PATH", "home_dir",
        "PYTHONPATH", "RAY_AUTH_MODE", "SSH_AUTH_SOCK", "COMPASS", "MONKEY", "PASSENGERS", "AUTHOR", "",
    ],
)  # fmt: skip
def test_other_names_stay_readable(name: str) -> None:
    assert not is_secret_name(name)


def an_env() -> dict[str, Any]:
    return {
        "env_vars": {"HF_TOKEN": "hf_abcdef", "OMP_NUM_THREADS": "4", "DB": "postgres://me:pw@db/x"},
        "pip": ["numpy", "--index-url https://me:pw@host/simple", "git+https://ghp_123@github.com/a/b.git"],
        "conda": {"dependencies": ["x", {"pip": ["https://u:p@h/x.whl"]}]},
    }


def test_an_environment_shows_names_but_not_secrets() -> None:
    assert redact_env(an_env()) == {
        "env_vars": {"HF_TOKEN": REDACTED, "OMP_NUM_THREADS": "4", "DB": f"postgres://{REDACTED}@db/x"},
        "pip": [
            "numpy",
            f"--index-url https://{REDACTED}@host/simple",
            f"git+https://{REDACTED}@github.com/a/b.git",
        ],
        "conda": {"dependencies": ["x", {"pip": [f"https://{REDACTED}@h/x.whl"]}]},
    }


def test_variables_written_as_assignments_are_hidden_too() -> None:
    assert redact_env({"env_vars": ["HF_TOKEN=abc", "A=1"]}) == {"env_vars": [f"HF_TOKEN={REDACTED}", "A=1"]}


def test_the_environment_itself_is_not_changed() -> None:
    env = an_env()
    redact_env(env)
    assert env == an_env()


def test_known_secrets_disappear_from_any_text() -> None:
    secrets = secrets_of(an_env())
    assert redact_text("curl -H 'Bearer hf_abcdef' failed", secrets) == f"curl -H 'Bearer {REDACTED}' failed"


def test_a_secret_that_contains_another_is_hidden_whole() -> None:
    assert redact_text("abcdefgh", ["abcd", "abcdefgh"]) == REDACTED


def test_a_secret_of_a_few_letters_does_not_tear_words_apart() -> None:
    assert redact_text("a yes-man said yes", ["yes", ""]) == "a yes-man said yes"


@pytest.mark.parametrize(
    "text",
    ["see https://host/a@b", "git+ssh://git@github.com/a/b", "mail me@host", "https://host?x=a@b", "12:30"],
)
def test_text_without_a_password_stays(text: str) -> None:
    assert redact_text(text) == text


@patient
@given(st.text(), st.lists(st.text(min_size=4, max_size=12), max_size=3))
def test_no_secret_is_left(text: str, secrets: list[str]) -> None:
    shown = redact_text("".join(f"{text}{secret}" for secret in secrets) + text, secrets)
    assert not any(secret in shown.replace(REDACTED, "\0") for secret in secrets if "\0" not in secret)


@patient
@given(st.text(), st.text("ab:@/ .", min_size=1))
def test_redacting_twice_is_redacting_once(text: str, user: str) -> None:
    once = redact_text(f"{text} https://{user}@host")
    assert redact_text(once) == once


def test_a_very_long_word_is_read_once() -> None:
    long = "x" * 500_000  # as long as a command may be; letter by letter it would take an hour
    assert redact_text(f"echo {long}", ["secret"]) == f"echo {long}"
    assert redact_text(f"{long}://user:word@host") == f"{long}://<redacted>@host"


def in_pieces(pieces: list[str], secrets: tuple[str, ...]) -> str:
    shown = GrowingText(secrets)
    return "".join([*map(shown.add, pieces), shown.rest()])


TOKEN = "raymc_0123456789_" + "Ab3_" * 10
#: Words and their parts, which often add up to a secret, a URL with a password, or a token of ours.
_PARTS = st.sampled_from(
    ["aa", "aab", "b", "ba", " ", "\n", "https", "://", ":", "/", "user:pw", "@", "host", TOKEN[:6],
     TOKEN[6:9], TOKEN[9:], "abaaba"]
)  # fmt: skip


@patient
@given(
    st.lists(_PARTS, max_size=20),
    st.lists(st.sampled_from(["aabb", "abaaba", "baab\nb", "bbbb", "user:pw@host"]), max_size=3),
)
def test_a_text_in_pieces_is_shown_as_the_whole_text_is(pieces: list[str], secrets: list[str]) -> None:
    assert in_pieces(pieces, tuple(secrets)) == redact_text("".join(pieces), secrets)


def test_a_long_secret_is_hidden_wherever_the_pieces_end() -> None:
    secret = "".join(f"{n:05}" for n in range(1000))
    for size in (1, 7, 1000, 4000):
        text = f"before {secret} after"
        shown = in_pieces([text[n : n + size] for n in range(0, len(text), size)], (secret,))
        assert shown.replace(REDACTED, "") == "before  after"


def test_what_can_be_no_secret_is_shown_at_once() -> None:
    shown = GrowingText(("hunter2",))
    assert [shown.add(piece) for piece in ("45 %", " ... ", "50 %\n")] == ["45 %", " ... ", "50 %\n"]
    assert shown.add("Enter: hunt") == "Enter: "
    assert shown.add("ing\n") == "hunting\n"
