"""The pictures on the pages are those that are drawn, and show the tree as it is."""

from pathlib import Path

import pytest
from tests.docs.sequence_pictures import IMAGES, PICTURES, Picture, drawn

import ray_multicluster_scheduler

SRC = Path(ray_multicluster_scheduler.__file__).parent


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_the_picture_in_the_page_is_the_one_that_is_drawn(picture: Picture) -> None:
    assert (IMAGES / picture.name).read_text() == drawn(picture)
    assert picture.name in (IMAGES.parent / picture.page).read_text()


@pytest.mark.parametrize(
    "picture", [each for each in PICTURES if each.of_this_tree], ids=lambda picture: picture.name
)
def test_every_file_in_a_picture_is_in_the_tree(picture: Picture) -> None:
    assert [step.file for step in picture.steps if not (SRC / step.file).is_file()] == []
