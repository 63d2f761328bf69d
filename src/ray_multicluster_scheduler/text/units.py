"""Times and sizes as people write them: 90s, 15min, 12h, 30d, 2w; 512MiB, 4G, 4GB. The one parser of both."""

from __future__ import annotations

import math
import string
from collections.abc import Mapping

_SECONDS: Mapping[str, int] = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
#: `4G` and `4Gi` are 4 GiB, as for Slurm and Docker; `4GB` is decimal, as it is printed on a disk.
BYTES: Mapping[str, int] = {
    "b": 1,
    **{unit: 1024**power for power, k in enumerate("kmgt", start=1) for unit in (k, f"{k}i", f"{k}ib")},
    **{f"{k}b": 1000**power for power, k in enumerate("kmgt", start=1)},
}


def seconds_of(text: str, *, plain: bool = False) -> float:
    """Read a length of time; a number without a unit only if `plain`. ValueError says what is wanted."""
    value = _amount(text, {**_SECONDS, "": 1} if plain else _SECONDS)
    if value is None:
        number = ", or a number of seconds" if plain else ""
        raise ValueError(f"{text[:80]!r} is no span of time; write 90s, 30m, 12h, 30d or 2w{number}")
    return value


def bytes_of(text: str, *, plain: int) -> float:
    """Read a size; a number without a unit counts units of `plain` bytes. ValueError says what is wanted."""
    value = _amount(text, {**BYTES, "": plain})
    if value is None:
        raise ValueError(f"{text[:80]!r} is no size; write 512MiB, 4GiB (or 4G), 4GB, or a plain number")
    return value


def _amount(text: str, units: Mapping[str, int]) -> float | None:
    number = text.strip().rstrip(string.ascii_letters)
    unit = units.get(text.strip()[len(number) :].lower())
    try:
        value = float(number) * (unit or 0)
    except ValueError:
        return None
    return value if unit is not None and math.isfinite(value) and not value < 0 else None
