from __future__ import annotations

import pytest

from ray_multicluster_scheduler.dashboard.pages.jobs_page import Picked


def test_what_is_selected_comes_as_lists_of_ids() -> None:
    sent = {"action": "stop", "jobs": ["a", 3, None], "heads": ["b"]}
    assert Picked.sent(sent) == Picked(action="stop", jobs=("a",), heads=("b",))


@pytest.mark.parametrize(
    "sent", [None, [], "stop", {}, {"action": "delete", "jobs": ["a"]}, {"action": ["stop"]}]
)
def test_anything_else_is_ignored(sent: object) -> None:
    assert Picked.sent(sent) is None
