"""`raymc token` and `raymc audit`: a token is written once, and who did what can be read."""

import json

from tests.support.job_commands import Commands, raymc

from ray_multicluster_scheduler.service.request import JobRequest

__all__ = ["raymc"]


def test_a_token_is_the_only_thing_on_stdout_and_is_listed_without_its_secret(raymc: Commands) -> None:
    done = raymc.run("token", "create", "--user", "ann", "--role", "operate", "--expires", "12h")
    assert done.code == 0, done.err
    secret = done.out.removesuffix("\n")
    assert secret.startswith("raymc_")
    assert "\n" not in secret
    token_id = secret.split("_")[1]
    assert token_id in done.err
    assert secret not in done.err

    listed = raymc.run("token", "list").out
    assert secret not in listed
    (row,) = json.loads(raymc.run("token", "list", "--json").out)
    assert (row["id"], row["user"], row["role"]) == (token_id, "ann", "operate")
    assert 0 < row["expires_at"] - row["created_at"] <= 12 * 3600
    assert f"{token_id}  ann   operate  valid" in listed

    assert f"{token_id}: revoked" in raymc.run("token", "revoke", token_id).out
    assert f"{token_id}  ann   operate  revoked" in raymc.run("token", "list").out


def test_mistakes_are_said_plainly(raymc: Commands) -> None:
    assert "there is no role 'boss'" in raymc.refused("token", "create", "--user", "ann", "--role", "boss")
    assert "no span of time" in raymc.refused("token", "create", "--user", "ann", "--expires", "soon")
    assert "no token has the id 'gone'" in raymc.refused("token", "revoke", "gone")


def test_the_audit_trail_tells_of_every_change(raymc: Commands) -> None:
    raymc.run("token", "create", "--user", "ann", "--expires", "never")
    with raymc.scheduler(start=True) as scheduler:  # or a submission waits for a look at the clusters
        service = scheduler.service
        service.submit([JobRequest(entrypoint="sleep 600", user="me", submission_id="one")])
        service.stop(["one"])
        service.set_drained("centos", drained=True, reason="disks")
        service.set_drained("centos", drained=False)

    entries = raymc.json("audit")

    assert [(entry["action"], entry["target"]) for entry in entries][:4] == [
        ("undrain", "centos"),
        ("drain", "centos"),
        ("stop", "one"),
        ("submit", "one"),
    ]
    assert entries[4]["action"] == "token create"
    assert len(raymc.json("audit", "--limit", "2")) == 2
    assert "undrain" in raymc.run("audit", "--user", entries[0]["user"]).out
