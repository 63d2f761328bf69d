"""Amounts of resources as people write them."""

from __future__ import annotations

import pytest

from ray_multicluster_scheduler.dashboard.chips import amount, resources_text
from ray_multicluster_scheduler.dashboard.words import Words

GIB = 2**30


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "CPU 8 · GPU 0.5 · Memory 3.0 GiB · TPU 2 · Object store 1.5 GiB"),
        ("zh", "CPU 8 · GPU 0.5 · 内存 3.0 GiB · TPU 2 · 对象存储 1.5 GiB"),
    ],
)
def test_resources_begin_with_those_that_people_look_for(language: str, text: str) -> None:
    resources = {"memory": 3 * GIB, "TPU": 2.0, "node:10.0.0.1": 1.0, "GPU": 0.5, "CPU": 8.0}
    assert resources_text(Words(language), {**resources, "object_store_memory": 1.5 * GIB}) == text


def test_no_resources_are_no_text() -> None:
    assert resources_text(Words("en"), {"node:10.0.0.1": 1.0}) == ""


def test_only_what_ray_counts_in_bytes_is_in_gib() -> None:
    assert amount("memory", GIB) == "1.0 GiB"
    assert amount("CPU", 2.0) == "2"
