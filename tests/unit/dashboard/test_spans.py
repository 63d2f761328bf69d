"""Attempts on a timeline: their lanes, how full their clusters were, and their colours."""

from __future__ import annotations

from itertools import combinations
from math import inf

from hypothesis import given
from hypothesis import strategies as st
from tests.support import builders

from ray_multicluster_scheduler.dashboard.chips import PALETTE, STATE_COLOURS, user_colours
from ray_multicluster_scheduler.dashboard.pages.timeline_page import (
    NEWEST,
    lanes,
    picture,
    shown_state,
    span_name,
    utilisation,
)
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.make_views import show_cluster
from ray_multicluster_scheduler.service.views import SpanView, TimelineView


def a_span(placed_at: float, ended_at: float | None = None, **changes: object) -> SpanView:
    fields = {
        "submission_id": f"sub_{placed_at:g}",
        "job_id": "train",
        "user": "ann",
        "group": None,
        "cluster": "a",
        "attempt": 1,
        "placed_at": placed_at,
        "started_at": None,
        "ended_at": ended_at,
        "outcome": None if ended_at is None else "SUCCEEDED",
        "state": JobState.RUNNING if ended_at is None else JobState.SUCCEEDED,
        "claim": {"CPU": 1.0},
    }
    return SpanView.model_validate(fields | changes)


def a_view(*spans: SpanView, truncated: bool = False) -> TimelineView:
    return TimelineView(since=0.0, until=100.0, spans=spans, truncated=truncated)


moments = st.integers(0, 50)


@st.composite
def many_spans(draw: st.DrawFn) -> list[SpanView]:
    drawn = draw(st.lists(st.tuples(moments, st.none() | st.integers(0, 20)), max_size=30))
    return [
        a_span(placed, None if lasted is None else placed + lasted)
        for placed, lasted in sorted(drawn, key=lambda each: each[0])
    ]


def end_of(span: SpanView) -> float:
    return inf if span.ended_at is None else span.ended_at


def overlap(a: SpanView, b: SpanView) -> bool:
    return a.placed_at < end_of(b) and b.placed_at < end_of(a)


@given(many_spans())
def test_no_two_spans_of_a_lane_overlap(spans: list[SpanView]) -> None:
    for (one, lane), (other, same) in combinations(zip(spans, lanes(spans), strict=True), 2):
        assert lane != same or not overlap(one, other)


@given(many_spans())
def test_there_are_as_few_lanes_as_possible(spans: list[SpanView]) -> None:
    def living_at(at: float) -> int:
        return sum(each.placed_at <= at < max(end_of(each), each.placed_at + 0.1) for each in spans)

    most = max((living_at(each.placed_at) for each in spans), default=0)
    assert max(lanes(spans), default=-1) + 1 <= most


@given(many_spans(), moments)
def test_newer_spans_leave_the_lanes_of_older_ones_alone(spans: list[SpanView], count: int) -> None:
    assert lanes(spans)[:count] == lanes(spans[:count])


def test_a_span_that_lives_keeps_its_lane() -> None:
    assert lanes([a_span(1), a_span(2, 3), a_span(4, 5)]) == [0, 1, 1]


def test_utilisation_is_the_share_of_cpus_that_live_attempts_claim() -> None:
    spans = [a_span(10, 30, claim={"CPU": 2.0}), a_span(20, None, claim={"CPU": 1.0, "GPU": 1.0})]
    assert utilisation(spans, 4.0, since=0.0) == [(0.0, 0.0), (10.0, 50.0), (20.0, 75.0), (30.0, 25.0)]


def test_utilisation_counts_what_was_placed_before_the_window() -> None:
    assert utilisation([a_span(-10, 30)], 2.0, since=0.0) == [(0.0, 50.0), (30.0, 0.0)]


def test_utilisation_of_a_cluster_that_has_shrunk_is_more_than_all() -> None:
    assert utilisation([a_span(1, claim={"CPU": 8.0})], 4.0, since=0.0)[-1] == (1.0, 200.0)


def test_one_job_after_another_at_once_is_no_dip() -> None:
    assert utilisation([a_span(1, 2), a_span(2, 3)], 1.0, since=0.0) == [(0.0, 0.0), (1.0, 100.0), (3.0, 0.0)]


@given(many_spans())
def test_utilisation_is_never_negative(spans: list[SpanView]) -> None:
    assert all(percent >= 0 for _, percent in utilisation(spans, 3.0, since=5.0))


def test_an_attempt_is_shown_as_it_ended_and_not_as_its_job_did() -> None:
    retried = a_span(1, 2, outcome="USER", state=JobState.SUCCEEDED)
    assert shown_state(retried) == "FAILED"
    assert shown_state(a_span(1, 2, outcome="REPLACED", state=JobState.RUNNING)) == "LOST"
    assert shown_state(a_span(1)) == "RUNNING"


def test_every_state_has_a_colour() -> None:
    assert {state.value for state in JobState} == set(STATE_COLOURS)


def test_a_job_without_a_name_is_shown_by_its_id() -> None:
    assert span_name(a_span(1, job_id="train")) == "train"
    assert span_name(a_span(1, job_id="")) == "sub_1"


def test_two_users_share_no_colour_while_there_are_enough() -> None:
    users = [f"user-{number}" for number in range(len(PALETTE))]
    assert len(set(user_colours(users).values())) == len(PALETTE)
    assert len(user_colours([*users, "one more"])) == len(PALETTE) + 1


def test_a_user_alone_has_the_same_colour_every_time() -> None:
    assert user_colours(["ann"]) == user_colours(["ann"])


def test_a_cluster_that_is_configured_no_more_is_drawn_without_a_curve() -> None:
    (band,) = picture(a_view(a_span(1, cluster="gone")), (), None).drawing["bands"]
    assert (band["name"], band["cpus"], band["curve"], len(band["spans"])) == ("gone", None, [], 1)


def test_the_drawing_stays_equal_while_only_time_passes() -> None:
    view = a_view(a_span(1), a_span(2, 3))
    later = view.model_copy(update={"until": 200.0})
    assert picture(view, (), None).drawing == picture(later, (), None).drawing


def test_a_curve_says_nothing_of_a_time_whose_attempts_were_left_out() -> None:
    four_cpus = show_cluster(builders.a_view("a"), now=100.0)
    (band,) = picture(a_view(a_span(50), truncated=True), (four_cpus,), None).drawing["bands"]
    assert band["curve"] == [(50_000, 25.0)]


def test_the_table_has_the_newest_spans_first() -> None:
    newest = picture(a_view(*(a_span(at, at + 1) for at in range(60))), (), None).newest
    assert [span.placed_at for span in newest] == list(range(59, 59 - NEWEST, -1))
