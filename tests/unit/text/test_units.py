"""Times and sizes as people write them, the same for every option."""

import pytest
from tests.unit.service.test_option_keys import request

from ray_multicluster_scheduler.model.resources import GIB
from ray_multicluster_scheduler.text import bytes_of, seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1.5 h", 5400), ("10m", 600), ("10MIN", 600), (" 2d ", 172800), ("1w", 604800), ("0s", 0)],
)
def test_a_time_has_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds_of(text, plain=True) == seconds


@pytest.mark.parametrize("text", ["", "s", "h1", "soon", "-5s", "nan", "inf", "1e999s", "5 parsecs", "1h30"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no span of time; write 90s, 30m, 12h, 30d or 2w"):
        seconds_of(text, plain=True)


def test_a_plain_number_is_a_time_only_where_seconds_are_documented() -> None:
    assert seconds_of("90", plain=True) == 90
    assert seconds_of("1e3", plain=True) == 1000
    with pytest.raises(ValueError, match="'90' is no span of time"):
        seconds_of("90")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4", 4 * GIB),
        ("0.5", GIB / 2),
        ("4GiB", 4 * GIB),
        ("4G", 4 * GIB),
        ("4 gi", 4 * GIB),
        ("4GB", 4e9),
        ("512MiB", 2**29),
        ("100kb", 1e5),
        ("7b", 7),
        ("1T", 2**40),
    ],
)
def test_a_size_has_a_unit_or_that_of_its_option(text: str, size: float) -> None:
    assert bytes_of(text, plain=GIB) == size


@pytest.mark.parametrize("text", ["", "G", "much", "-1G", "4PB", "nan", "1e999"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no size; write 512MiB"):
        bytes_of(text, plain=1)


def test_keys_of_the_metadata_are_read_alike() -> None:
    asked = request(metadata={"raymc.timeout": "1h", "raymc.on_unreachable": "5m", "raymc.memory": "512MiB"})
    assert (asked.timeout_s, asked.on_unreachable) == (3600, 300)
    assert asked.resource_requirements == {"memory": 0.5}
    assert request(metadata={"raymc.memory": "2147483648"}).resource_requirements == {"memory": 2**31}
