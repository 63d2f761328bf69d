"""Numbers as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.client.display import age, bar, duration, used_of
from ray_multicluster_scheduler.model.resources import GIB


@pytest.mark.parametrize(
    ("used", "total", "is_bytes", "text"),
    [
        (2.0, 4.0, False, "2/4"),
        (0.5, 4.0, False, "0.5/4"),
        (None, 4.0, False, "of 4"),
        (3.25 * GIB, 16.0 * GIB, True, "3.2/16 GiB"),
        (None, 16.0 * GIB, True, "of 16 GiB"),
        (512.0 * GIB, 4096.0 * GIB, True, "0.5/4 TiB"),
    ],
)
def test_use_is_written_with_its_total(used: float | None, total: float, is_bytes: bool, text: str) -> None:
    assert used_of(used, total, is_bytes=is_bytes) == text


@given(st.floats(min_value=-1, max_value=2), st.integers(min_value=1, max_value=40))
def test_a_bar_has_its_width_and_shows_the_least_use(share: float, width: int) -> None:
    drawn = bar(share, width=width, plain=True).plain
    assert len(drawn) == width
    assert ("#" in drawn) == (share > 0)


@pytest.mark.parametrize(("seconds", "text"), [(0.0243, "24 ms"), (1.24, "1.2 s"), (2.0, "2 s")])
def test_a_latency_is_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (60, "1 min"), (7300, "2 h"), (200_000, "2 d")]
)
def test_an_age_has_one_unit(seconds: float, text: str) -> None:
    assert age(seconds) == text
