"""What the address of the timeline chooses."""

from __future__ import annotations

from ray_multicluster_scheduler.dashboard.pages.timeline_page import View, view_of


def test_an_address_leads_to_the_same_view_again() -> None:
    view = View(window_s=900, cluster="a&b", colouring="user")
    assert view.address == "/timeline?window=900&cluster=a%26b&colour=user"
    assert view_of({"window": "900", "cluster": "a&b", "colour": "user"}) == view


def test_what_an_address_says_wrongly_is_as_usual() -> None:
    assert view_of({"window": "-1", "cluster": "", "colour": "<b>"}) == View()
