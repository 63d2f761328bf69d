"""What is written to a row is read back the same."""

import json
from types import MappingProxyType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import NOW, a_job, a_snapshot

from ray_multicluster_scheduler.model.cluster import Health, Node
from ray_multicluster_scheduler.model.job import Job, JobSpec
from ray_multicluster_scheduler.store.schema.rows import (
    JOB_FIELDS,
    changed_values,
    job_from,
    new_job,
    new_job_row,
    snapshot_from,
    to_json,
)

TEXT = st.text(max_size=8)
AMOUNTS = st.dictionaries(TEXT, st.floats(0, 1e12), max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
SPECS = st.builds(
    JobSpec,
    entrypoint=TEXT,
    user=TEXT,
    name=st.none() | TEXT,
    runtime_env=st.dictionaries(TEXT, JSON, max_size=3),
    metadata=st.dictionaries(TEXT, TEXT, max_size=3),
    tags=st.lists(TEXT, max_size=3).map(tuple),
    requirements=AMOUNTS,
    entrypoint_resources=AMOUNTS,
    entrypoint_memory=st.none() | st.integers(0, 2**62),
    priority=st.integers(-100, 100),
    depends_on=st.lists(TEXT, max_size=3).map(tuple),
    timeout_s=st.none() | st.floats(0, 1e9),
    on_unreachable=st.sampled_from(["wait", "fail"]) | st.floats(1, 1e6),
    group=st.none() | TEXT,
)


def stored(row: dict[str, Any]) -> dict[str, Any]:
    """Do to the row of a job what the database does: enums become values, and JSON text."""
    values = json.loads(to_json(row))
    return {**values, "spec": json.dumps(values["spec"]), "avoid": json.dumps(values["avoid"])}


def read(row: dict[str, Any]) -> Job:
    return job_from([row[name] for name in JOB_FIELDS])


@given(SPECS)
def test_a_spec_survives_its_row(spec: JobSpec) -> None:
    row = stored({"seq": 7, **new_job_row("job", spec, now=NOW)})

    assert read(row) == a_job("job", seq=7, spec=spec, reason="accepted")
    assert read(row) == new_job("job", spec, seq=7, now=NOW)


def test_what_a_newer_version_wrote_is_read_without_what_it_has_added() -> None:
    row = stored({"seq": 7, **new_job_row("job", a_job().spec, now=NOW)})
    spec = {**json.loads(row["spec"]), "invented_later": {"any": "thing"}}
    snapshot = json.loads(to_json(a_snapshot(nodes=(Node(node_id="n", address="10.0.0.1", alive=True),))))
    newer = {
        **snapshot,
        "invented_later": 1,
        "nodes": [{**node, "invented_later": 1} for node in snapshot["nodes"]],
    }

    assert read({**row, "spec": json.dumps(spec)}).spec == a_job().spec
    assert snapshot_from(newer) == snapshot_from(snapshot)


def test_a_spec_that_an_older_version_wrote_gets_the_defaults_of_newer_fields() -> None:
    row = stored({"seq": 7, **new_job_row("job", a_job().spec, now=NOW)})
    spec = json.loads(row["spec"])
    del spec["group"]
    row["spec"] = json.dumps(spec)

    assert read(row).spec == a_job().spec


def test_json_is_made_of_records_enums_and_any_mapping() -> None:
    value = {"a": MappingProxyType({Health.HEALTHY: (Health.UNKNOWN, a_snapshot("x").name)})}

    assert json.loads(to_json(value)) == {"a": {"HEALTHY": ["UNKNOWN", "x"]}}


def test_a_snapshot_survives_its_row() -> None:
    snapshot = a_snapshot("a", total=None, nodes=None, pending=(({"CPU": 1.0}, 2),))

    assert snapshot_from(json.loads(to_json(snapshot))) == snapshot


def test_a_snapshot_of_another_version_is_read_as_far_as_it_is_known() -> None:
    data = json.loads(to_json(a_snapshot("a")))
    older = {name: value for name, value in data.items() if name not in {"warm", "start_limit", "awaited"}}

    assert snapshot_from({**older, "mood": "sunny"}) == a_snapshot("a")


def test_the_secrets_of_a_job_are_in_no_column_but_its_spec() -> None:
    spec = a_job().spec
    secret = JobSpec(
        entrypoint=spec.entrypoint, user=spec.user, runtime_env={"env_vars": {"TOKEN": "s3cret"}}
    )

    row = new_job_row("job", secret, now=NOW)

    assert [name for name, value in row.items() if "s3cret" in repr(value)] == ["spec"]
    assert "s3cret" not in repr(changed_values(a_job(spec=secret), a_job(spec=secret), ["reason"]))
