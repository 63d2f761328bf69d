"""Which values are secrets, and how to show text and environments without them.

A value that is hidden by mistake costs a look into the configuration. A secret that is shown by mistake has
to be replaced. So a name counts as secret when in doubt.
"""

from __future__ import annotations

import re
from bisect import bisect_right
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
#: Begins with a literal text, which is searched for at the speed of C: logs are long.
_USER_IN_URL = re.compile(r"://(?P<user>[^/?#\s'\"]+)@")
#: The length of a scheme is limited: else matching a very long word would take quadratic time.
_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]{0,30}"
_SCHEME_AT_END = re.compile(rf"{_SCHEME}\Z")
#: How many characters of a growing text are held back at most, until it is known whether they are a secret.
_MOST_HELD = 1024
#: The end of a text that may be the beginning of a URL with a user, or of a token of ours.
_UNFINISHED = re.compile(
    rf"(?:{_SCHEME}(?::(?:/(?:/[^/?#\s'\"]{{0,{_MOST_HELD}}})?)?)?"
    rf"|{TOKEN_PREFIX}[A-Za-z0-9_-]{{0,{_MOST_HELD}}})\Z"
)

#: Between the words of `accessToken`, and between those of ACCESS_TOKEN.
_NEW_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BETWEEN_WORDS = re.compile(r"[^A-Z0-9]+")


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Tell whether a variable of this name probably holds a secret."""
    words = _BETWEEN_WORDS.split(_NEW_WORD.sub("_", name).upper())
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
    pattern = _any_of(secrets)
    if pattern is not None:  # in one pass: a secret may contain another one, or a part of the replacement
        text = pattern.sub(REDACTED, text)
    return _OUR_TOKEN.sub(rf"\1{REDACTED}", _USER_IN_URL.sub(_without_user, text))


class GrowingText:
    """Redacts a text that comes in pieces, also a secret that is split between two of them.

    The end of a piece is held back while it may be the beginning of a secret.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        # A part of a long secret is a secret: so not much has to be held back.
        parts = {each[n : n + _MOST_HELD] for each in secrets for n in range(0, len(each), _MOST_HELD)}
        self._secrets = sorted(each for each in parts if len(each) >= _SHORTEST_SECRET)
        self._pattern = _any_of(self._secrets)
        self._first = re.compile("|".join({re.escape(each[0]) for each in self._secrets}))
        self._held = ""

    def add(self, piece: str) -> str:
        """Return what can be shown now."""
        text = self._held + piece
        end = self._unfinished_from(text)
        self._held = text[end:]
        return redact_text(text[:end], self._secrets)

    def rest(self) -> str:
        """Return what was held back: no piece follows."""
        held, self._held = self._held, ""
        return redact_text(held, self._secrets)

    def _unfinished_from(self, text: str) -> int:
        first = max(0, len(text) - _MOST_HELD)
        unfinished = _UNFINISHED.search(text, first)
        end = unfinished.start() if unfinished else len(text)
        if self._pattern is None:
            return end
        begins = (match.start() for match in self._first.finditer(text, first, end))
        end = next((start for start in begins if self._is_beginning(text[start:])), end)
        for match in self._pattern.finditer(text):
            if match.end() > end:  # a secret is shown or held back as a whole
                return min(end, match.start())
        return end

    def _is_beginning(self, text: str) -> bool:
        """Tell whether a secret begins with this text and goes on."""
        after = bisect_right(self._secrets, text)
        return after < len(self._secrets) and self._secrets[after].startswith(text)


def _any_of(secrets: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted({each for each in secrets if len(each) >= _SHORTEST_SECRET}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


def _without_user(match: re.Match[str]) -> str:
    scheme = _SCHEME_AT_END.search(match.string, max(0, match.start() - 31), match.start())
    if scheme is None:
        return match[0]
    # A user without a password is public over ssh (`git@`). Over https it is often a token.
    is_name = ":" not in match["user"] and not scheme[0].lower().endswith(("http", "https"))
    return match[0] if is_name else f"://{REDACTED}@"


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
