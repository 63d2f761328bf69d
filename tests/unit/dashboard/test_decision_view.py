"""What the planner says of each cluster, in words."""

from __future__ import annotations

import pytest

from ray_multicluster_scheduler.core.placement.scoring import part_names
from ray_multicluster_scheduler.dashboard.decision_view import score_text
from ray_multicluster_scheduler.dashboard.words import Words
from ray_multicluster_scheduler.model.decision import Score


def scored(**parts: float) -> Score:
    return Score(total=1.0, parts=parts, prefer=False)


def test_the_parts_of_a_score_are_shown_as_its_formula() -> None:
    score = scored(fit=0.5, weight=2.0, health=1.0, tags=0.25, warm=0.0, gpu=-0.5)
    assert tuple(score.parts) == part_names()
    assert (
        score_text(Words("en"), score)
        == "fit 0.50 × weight 2.00 × health 1.00 + tags 0.25 + warm 0.00 − GPU 0.50"
    )


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_part_that_the_catalogue_does_not_know_keeps_its_name(language: str) -> None:
    assert score_text(Words(language), scored(fit=1.0, luck=0.1)).endswith(" + luck 0.10")
