"""Text as every database can keep it: programs write anything into their logs and error messages."""

from __future__ import annotations

#: Stands for what cannot be kept.
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def storable(text: str) -> str:
    """Return the text with NUL and lone surrogates replaced: no encoding, or not every database, has them."""
    if text.isascii() and "\0" not in text:  # nearly always
        return text
    clean = text.replace("\0", REPLACEMENT)
    try:
        clean.encode()
    except UnicodeEncodeError:
        return "".join(REPLACEMENT if "\ud800" <= each <= "\udfff" else each for each in clean)
    return clean
