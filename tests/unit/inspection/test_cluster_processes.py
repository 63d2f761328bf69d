"""`raymc ps` tells jobs, sessions, bridges and hubs apart, and for whom a session is there."""

from dataclasses import replace

from ray_multicluster_scheduler.inspection.clusters import items_of
from ray_multicluster_scheduler.ray_api.http_connection import Driver, RemoteActor, RemoteTask
from ray_multicluster_scheduler.service.views import ProcessView

SERVER = "python -m ray.util.client.server --address=h:6379 --port=23001 --mode=specific-server"


def a_driver(job_id: str, command: str, submission_id: str | None = None) -> Driver:
    return Driver(job_id=job_id, pid=7, command=command, submission_id=submission_id, state="RUNNING")


def an_actor(name: str, job_id: str = "01", class_name: str = "Infer") -> RemoteActor:
    return RemoteActor(actor_id="x", class_name=class_name, name=name, state="ALIVE", pid=8, job_id=job_id)


def kinds(items: list[ProcessView]) -> list[str]:
    return [item.kind for item in items]


def test_a_session_says_for_whom_it_is_there() -> None:
    hub = an_actor("raymc hub 12ab for job sub_1, home cluster mac", job_id="02", class_name="Hub")
    ours, foreign, its_hub = items_of("centos", [a_driver("02", SERVER), a_driver("03", SERVER)], [hub], [])
    assert (ours.kind, ours.why) == ("session", "the bridge of job sub_1, home cluster mac")
    assert (foreign.kind, foreign.why) == ("session", "a program connected with ray.init('ray://...')")
    assert (its_hub.kind, its_hub.why) == ("hub", "for job sub_1, home cluster mac")


def test_a_session_through_a_server_of_ours_says_whose_it_is() -> None:
    driver = replace(a_driver("02", SERVER), metadata={"raymc.job": "session-1", "raymc.user": "ann"})
    (item,) = items_of("mac", [replace(driver, started_at=5.0)], [], [])
    assert (item.kind, item.why, item.pid, item.started_at) == ("session", "session-1 of ann", 7, 5.0)


def test_jobs_drivers_actors_and_bridges_are_told_apart_and_supervisors_are_not_shown() -> None:
    items = items_of(
        "mac",
        [a_driver("01", "python predict.py", "sub_1"), a_driver("04", "python notebook.py")],
        [
            an_actor("infer_1"),
            an_actor("raymc bridge to centos 12ab"),
            an_actor("x", class_name="JobSupervisor"),
        ],
        [],
    )
    assert kinds(items) == ["job", "driver", "actor", "bridge"]
    assert items[0].why == "submitted as sub_1"
    assert items[3].what == "to cluster centos"


def test_tasks_are_counted_by_name_and_state_and_calls_of_actors_are_not_tasks() -> None:
    tasks = [
        RemoteTask(task_id=str(number), name="train", state="RUNNING", is_actor_call=number == 0)
        for number in range(4)
    ]
    (item,) = items_of("mac", [], [], tasks)
    assert (item.kind, item.state, item.what) == ("task", "RUNNING", "3 × train")
