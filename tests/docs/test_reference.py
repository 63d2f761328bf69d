"""The reference pages say what the code does: nothing is missing, nothing is made up."""

import re

import pytest
from tests.docs import reference_page
from tests.support.pages import DOCS, table
from tests.unit.test_layers import LAYERS

import ray_multicluster_scheduler
from ray_multicluster_scheduler import aio, errors
from ray_multicluster_scheduler.core.placement.scoring import part_names
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.model.decision import Cause
from ray_multicluster_scheduler.model.states import RAY_STATUS, TRANSITIONS
from ray_multicluster_scheduler.service.views import JobDetail
from raymc_demo.show import STEPS

STATES = DOCS / "job-states.md"
PLACEMENT = DOCS / "placement.md"


def code(cell: str) -> str:
    """Take a cell out of its backticks."""
    return cell.strip("`")


def test_every_state_is_explained_with_rays_word_for_it() -> None:
    rows = table(STATES, "state", "what it means", "Ray's word")
    assert {code(row["state"]): code(row["Ray's word"]) for row in rows} == {
        state.value: word for state, word in RAY_STATUS.items()
    }


def test_every_key_of_a_job_is_explained() -> None:
    rows = table(STATES, "keys", "what they are")
    assert sorted(key for row in rows for key in re.findall(r"`(\w+)`", row["keys"])) == sorted(
        JobDetail.model_fields
    )


def test_every_arrow_is_explained() -> None:
    rows = table(STATES, "from", "to", "when")
    assert [(code(row["from"]), code(row["to"])) for row in rows] == [
        (old.value, new.value) for old, moves in TRANSITIONS.items() for new in moves
    ]
    assert all(row["when"] for row in rows)


def test_every_reason_to_refuse_a_cluster_is_explained() -> None:
    rows = table(PLACEMENT, "cause", "when")
    assert {code(row["cause"]) for row in rows} == {cause.value for cause in Cause}


def test_every_part_of_a_score_is_explained_with_its_worth() -> None:
    rows = {code(row["part"]): row["value"] for row in table(PLACEMENT, "part", "value")}
    assert tuple(rows) == part_names()
    rules = PlanRules()
    worth = {
        "tags": rules.tags_bonus,
        "warm": rules.warm_bonus,
        "gpu": -rules.gpu_penalty,
    }
    for part, amount in worth.items():
        found = re.search(r"[+−]\d\.\d", rows[part])
        assert found is not None
        assert float(found[0].replace("−", "-")) == amount


def test_every_layer_is_in_the_table_of_layers_in_its_order() -> None:
    rows = table(DOCS / "architecture.md", "folder", "what lives there")
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row["folder"])]
    assert listed == [layer for layer in LAYERS if not layer.startswith("__")]


def test_every_error_is_explained_with_its_parent() -> None:
    root = errors.SchedulerError
    classes = {
        n: each for n, each in vars(errors).items() if isinstance(each, type) and issubclass(each, root)
    }
    rows = table(DOCS / "reference" / "errors.md", "error", "is a", "when", "what to do")
    assert sorted(code(row["error"]) for row in rows) == sorted(classes)
    for row in rows:
        if row["is a"]:
            assert code(row["is a"]) in {
                parent.__name__ for parent in classes[code(row["error"])].__mro__[1:]
            }


def test_the_python_page_is_what_the_docstrings_say() -> None:
    again = "run: python -m tests.docs.reference_page"
    listed = [name for names in reference_page.SECTIONS.values() for name in names]
    listed += [kind.__name__ for kind in reference_page.OBJECTS]
    assert sorted(listed) == sorted(ray_multicluster_scheduler.__all__), again
    assert reference_page.PAGE.read_text() == reference_page.page(), again


@pytest.mark.parametrize("name", sorted(set(ray_multicluster_scheduler.__all__) - {"get_unified_scheduler"}))
def test_every_function_has_its_asyncio_twin(name: str) -> None:
    assert hasattr(aio, name)


def test_the_recording_is_of_this_demo() -> None:
    recording = (DOCS / "demo.md").read_text()
    titles = [f"{number}. {title}" for number, (title, _) in enumerate(STEPS, start=1)]
    assert [title for title in titles if title not in recording] == []
    assert "nothing is left behind" in recording
