"""How long a cluster has not answered."""

from tests.builders import NOW

from ray_multicluster_scheduler.core.lifecycle.silence import LONGEST_GAP_S, Silence, after_silent_look


def silent(*looks: tuple[float, bool]) -> Silence:
    silence: Silence | None = None
    for at, refused in looks:
        silence = after_silent_look(silence, refused=refused, now=NOW + at, poll_interval_s=1.0)
    assert silence is not None
    return silence


def test_a_silence_lasts_from_its_first_look_to_its_last() -> None:
    assert silent((0, False)).lasts_s == 0
    assert silent((0, False), (5, False), (12, False)).lasts_s == 12


def test_a_refusal_counts_only_without_a_break() -> None:
    assert silent((0, True), (10, True), (20, True)).refused_s == 20
    assert silent((0, True), (10, False), (20, True), (25, True)).refused_s == 5
    assert silent((0, True), (10, False)).refused_s == 0


def test_two_looks_that_are_far_apart_are_not_one_silence() -> None:
    stopped_for_s = LONGEST_GAP_S + 21
    assert silent((0, True), (stopped_for_s, True)).lasts_s == 0
    assert silent((0, True), (stopped_for_s, True)).refused_s == 0
