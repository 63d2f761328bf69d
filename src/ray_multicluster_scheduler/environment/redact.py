"""Which values are secrets, and how to show text and environments without them.

A value that is hidden by mistake costs a look into the configuration. A secret that is shown by mistake has
to be replaced. So a name counts as secret when in doubt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

REDACTED = "<redacted>"

#: Anywhere in a name, so that PGPASSWORD and CLIENTSECRET count.
_SECRET_PART = re.compile(r"SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(API|ACCESS|PRIVATE)_?KEY")
#: A whole word of a name, so that TOKENIZERS, MAX_TOKENS and KEYBOARD do not count.
_SECRET_WORDS = frozenset({"TOKEN", "PRIVATE", "COOKIE", "JWT"})
#: The last of several words: DB_PASS and BASIC_AUTH count, RAY_AUTH_MODE, KEY_COUNT and PWD do not.
_SECRET_ENDS = ("KEY", "KEYS", "PASS", "PWD", "AUTH")
#: A shorter value is more likely an ordinary word of a text than a secret.
_SHORTEST_SECRET = 4

#: Every token of ours begins with this, so that it can be recognised anywhere.
TOKEN_PREFIX = "raymc_"  # noqa: S105 - the beginning of one is no secret
#: The beginning of a job's token; the number of the job follows.
JOB_TOKEN_PREFIX = f"{TOKEN_PREFIX}job_"
_OUR_TOKEN = re.compile(rf"((?:{TOKEN_PREFIX}[0-9a-f]{{10}}|{JOB_TOKEN_PREFIX}[0-9]+)_)[A-Za-z0-9_-]{{20,}}")
#: The length of a scheme is limited: else matching a very long word would take quadratic time.
_USER_IN_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30})://(?P<user>[^/?#\s'\"]+)@")


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Tell whether a variable of this name probably holds a secret."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()  # accessToken
    words = re.split(r"[^A-Z0-9]+", spaced)
    return (
        bool(_SECRET_PART.search("_".join(words)))
        or any(word in _SECRET_WORDS or word.endswith("TOKEN") for word in words)
        or (len(words) > 1 and words[-1] in _SECRET_ENDS)
    )


def redact_env(runtime_env: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy for display: values of secret variables and users in URLs are hidden."""
    shown: dict[str, Any] = _redact_urls(runtime_env)
    env_vars = shown.get("env_vars")
    if isinstance(env_vars, dict):
        shown["env_vars"] = {
            name: REDACTED if is_secret_name(name) else value for name, value in env_vars.items()
        }
    elif isinstance(env_vars, list):
        shown["env_vars"] = [_redact_item(item) for item in env_vars]
    return shown


def secrets_of(runtime_env: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the values of the secret variables, for `redact_text`."""
    env_vars = runtime_env.get("env_vars") or {}
    return tuple(str(value) for name, value in env_vars.items() if is_secret_name(name))


def is_redacted(value: Any) -> bool:
    """Tell whether anything in this value was hidden: it can be shown, but no longer used."""
    if isinstance(value, str):
        return REDACTED in value
    if isinstance(value, Mapping):
        return any(is_redacted(content) for content in value.values())
    return isinstance(value, (list, tuple)) and any(is_redacted(item) for item in value)


def redact_text(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` without these secrets, users and passwords in URLs, and our own tokens."""
    longest_first = sorted({each for each in secrets if len(each) >= _SHORTEST_SECRET}, key=len, reverse=True)
    if longest_first:  # in one pass: a secret may contain another one, or a part of the replacement
        text = re.sub("|".join(map(re.escape, longest_first)), REDACTED, text)
    return _OUR_TOKEN.sub(rf"\1{REDACTED}", _USER_IN_URL.sub(_without_user, text))


def _without_user(match: re.Match[str]) -> str:
    # A user without a password is public over ssh (`git@`). Over https it is often a token.
    is_name = ":" not in match["user"] and not match["scheme"].lower().endswith(("http", "https"))
    return match[0] if is_name else f"{match['scheme']}://{REDACTED}@"


def _redact_urls(value: Any) -> Any:
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {key: _redact_urls(content) for key, content in value.items()}
    if isinstance(value, (list, tuple)):
        return [_redact_urls(item) for item in value]
    return value


def _redact_item(item: Any) -> Any:
    name, equals, _ = str(item).partition("=")
    return f"{name}={REDACTED}" if equals and is_secret_name(name) else item
