"""Our options in a job's metadata: what Ray's own clients can say to us."""

from typing import Any

import pytest

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.service.request import KEYS, JobRequest

#: Ray's own interface has a place for these, and whose job it is the server knows.
HAVE_NO_KEY = {
    "entrypoint",
    "user",
    "runtime_env",
    "metadata",
    "submission_id",
    "entrypoint_num_cpus",
    "entrypoint_num_gpus",
    "entrypoint_memory",
    "entrypoint_resources",
    "entrypoint_label_selector",
}


def request(**given: Any) -> JobRequest:
    return JobRequest(**{"entrypoint": "echo", "user": "me", **given})


def test_every_option_has_a_key_or_a_place_of_its_own() -> None:
    assert {key.field for key in KEYS.values()} | HAVE_NO_KEY == set(JobRequest.model_fields)
    assert not {key.field for key in KEYS.values()} & HAVE_NO_KEY


@pytest.mark.parametrize(
    ("key", "text", "field", "value"),
    [
        ("raymc.cluster", "mac", "preferred_cluster", "mac"),
        ("raymc.only_cluster", "mac", "only_cluster", "mac"),
        ("raymc.only_tags", "big, fast", "only_tags", ("big", "fast")),
        ("raymc.cpus", "2", "resource_requirements", {"CPU": 2.0}),
        ("raymc.gpus", "0.5", "resource_requirements", {"GPU": 0.5}),
        ("raymc.memory", "4", "resource_requirements", {"memory": 4.0}),
        ("raymc.resources", '{"fpga": 1}', "resource_requirements", {"fpga": 1}),
        ("raymc.tags", "big, fast", "tags", ("big", "fast")),
        ("raymc.priority", "-7", "priority", -7),
        ("raymc.after", "a,b", "depends_on", ("a", "b")),
        ("raymc.retries", "3", "max_retries", 3),
        ("raymc.timeout", "1.5", "timeout_s", 1.5),
        ("raymc.queue_timeout", "60", "queue_timeout_s", 60.0),
        ("raymc.on_unreachable", "fail", "on_unreachable", "fail"),
        ("raymc.on_unreachable", "300", "on_unreachable", 300.0),
        ("raymc.job_id", "nightly", "job_id", "nightly"),
        ("raymc.group", "batch", "group", "batch"),
        ("raymc.idempotency_key", "k", "idempotency_key", "k"),
        ("raymc.parent", "sub_1", "parent", "sub_1"),
        ("raymc.executor", "ray-jobs", "executor", "ray-jobs"),
        ("raymc.stop_children", "true", "stop_children", True),
    ],
)
def test_a_key_sets_its_option_and_stays_in_the_metadata(key: str, text: str, field: str, value: Any) -> None:
    asked = request(metadata={key: text, "mine": "kept"})

    assert getattr(asked, field) == value
    assert asked.metadata == {key: text, "mine": "kept"}


def test_every_kind_of_key_was_tried() -> None:
    """A new option whose value is read as that of another one needs no row of its own."""
    tried = next(m for m in test_a_key_sets_its_option_and_stays_in_the_metadata.pytestmark)  # type: ignore[attr-defined]
    assert {KEYS[row[0]].wants for row in tried.args[1]} == {key.wants for key in KEYS.values()}


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("raymc.priority", "high"),
        ("raymc.priority", "1" * 40),
        ("raymc.cpus", "-1"),
        ("raymc.cpus", "nan"),
        ("raymc.resources", "[1]"),
        ("raymc.resources", "[" * 100_000),
        ("raymc.timeout", "0"),
        ("raymc.retries", "-1"),
        ("raymc.on_unreachable", "give up"),
        ("raymc.cluster", " "),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_the_name_of_its_key(key: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=key):
        request(metadata={key: text})


def test_an_unknown_key_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InvalidRequest, match=r"'raymc\.priorty' is none; did you mean 'raymc\.priority'"):
        request(metadata={"raymc.priorty": "1"})


def test_amounts_of_several_keys_come_together() -> None:
    asked = request(
        metadata={"raymc.cpus": "2", "raymc.gpus": "1", "raymc.resources": '{"fpga": 1}'},
        resource_requirements={"CPU": 2, "disk": 5},
    )

    assert asked.resource_requirements == {"CPU": 2, "GPU": 1.0, "fpga": 1, "disk": 5}


def test_a_key_and_an_argument_that_differ_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"priority and the metadata key 'raymc\.priority'"):
        request(metadata={"raymc.priority": "5"}, priority=3)
    with pytest.raises(InvalidRequest, match="CPU"):
        request(metadata={"raymc.cpus": "5"}, resource_requirements={"CPU": 3})


def test_a_default_beside_a_key_says_nothing() -> None:
    assert request(metadata={"raymc.priority": "5"}, priority=0).priority == 5


def test_what_is_replaced_leaves_its_key_behind() -> None:
    asked = request(metadata={"raymc.priority": "5", "raymc.tags": "a", "mine": "kept"})

    assert asked.replaced(runtime_env={}).priority == 5
    again = asked.replaced(priority=7)
    assert (again.priority, again.tags) == (7, ("a",))
    assert again.metadata == {"raymc.tags": "a", "mine": "kept"}


@pytest.mark.parametrize("value", ["west", "!west", "in(west,east)", "!in(west, east)", "a-b_c.d"])
def test_label_selectors_of_ray_are_taken(value: str) -> None:
    assert request(entrypoint_label_selector={"ray.io/region": value}).entrypoint_label_selector


@pytest.mark.parametrize("selector", [{"a": "!!bad!!"}, {"a": "in()"}, {"-": "x"}, {"a": 1}, ["a"]])
def test_other_label_selectors_are_refused(selector: Any) -> None:
    with pytest.raises(InvalidRequest, match="entrypoint_label_selector"):
        request(entrypoint_label_selector=selector)
