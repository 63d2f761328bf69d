"""Which processes belong to a head: all that it started, and no other."""

from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.local.head import Process, belonging, parse_ps

HEAD = "/tmp/raymc-1/0"


def a_process(pid: int, *, parent: int = 1, session: int | None = None, **changes: str | None) -> Process:
    values = {"command": "sleep 1", "mark": None, **changes}
    return Process(pid=pid, parent=parent, session=pid if session is None else session, **values)


def pids(processes: list[Process], mark: str = HEAD) -> set[int]:
    return {process.pid for process in belonging(processes, mark)}


def test_a_process_is_found_by_its_mark_wherever_it_went() -> None:
    assert pids([a_process(10, mark=HEAD), a_process(11, session=5)]) == {10}


def test_one_that_hides_its_environment_is_found_beside_a_marked_one() -> None:
    gcs = a_process(10, session=9, mark=HEAD)
    title = a_process(11, session=9)
    cleaned_child = a_process(12, parent=10)
    grandchild = a_process(13, parent=12, session=12)
    assert pids([grandchild, cleaned_child, title, gcs]) == {10, 11, 12, 13}


def test_one_that_outlives_all_marked_ones_is_known_by_those_that_ended() -> None:
    gcs = a_process(10, session=9, mark=HEAD)
    mate, child, stranger = a_process(11, session=9), a_process(12, parent=10), a_process(13)
    assert pids([mate, child, stranger]) == set()
    assert {process.pid for process in belonging([mate, child, stranger], HEAD, [gcs])} == {11, 12}


def test_a_head_is_not_taken_for_another_whose_number_starts_alike() -> None:
    assert pids([a_process(10, mark=f"{HEAD}0")]) == set()


def test_a_sandbox_is_all_of_its_heads() -> None:
    heads = [
        a_process(10, mark=HEAD),
        a_process(11, mark="/tmp/raymc-1/1"),
        a_process(12, mark="/tmp/raymc-11/0"),
    ]
    assert pids(heads, "/tmp/raymc-1") == {10, 11}


def test_a_sandbox_inside_a_job_of_another_belongs_to_itself() -> None:
    assert pids([a_process(10, mark=HEAD), a_process(11, parent=10, mark="/tmp/raymc-2/0")]) == {10}


def test_nobody_is_a_mate_in_the_session_that_means_unknown() -> None:
    assert pids([a_process(10, session=0, mark=HEAD), a_process(11, session=0)]) == {10}


@given(
    st.lists(
        st.builds(
            a_process,
            st.integers(2, 40),
            parent=st.integers(0, 40),
            session=st.integers(0, 40),
            mark=st.sampled_from([None, HEAD, "/tmp/raymc-2/0"]),
        ),
        unique_by=lambda process: process.pid,
    )
)
def test_every_process_that_is_found_can_be_traced_to_a_mark(processes: list[Process]) -> None:
    found = belonging(processes, HEAD)
    assert {p.pid for p in processes if p.mark == HEAD} <= {p.pid for p in found}
    for process in found:
        relatives = [p for p in found if p.pid == process.parent or p.session == process.session != 0]
        assert process.mark == HEAD or (process.mark is None and len(relatives) > (process in relatives))


def test_roles_are_read_from_the_command_lines_of_both_ray_generations() -> None:
    commands = {
        "/x/ray/core/src/ray/gcs/gcs_server --log_dir=/t/session_1/logs": "gcs_server",
        "/x/ray/core/src/ray/raylet/raylet --raylet_socket_name=/t/sockets/raylet": "raylet",
        "/x/python /x/ray/dashboard/dashboard.py --host=127.0.0.1": "dashboard",
        "ray-dashboard-JobHead-0 (/x/python -B -c from multiprocessing.forkserver": "dashboard_module",
        "ray::DashboardAgent": "agent",
        "/x/python -u /x/ray/dashboard/agent.py --node-ip-address=127.0.0.1": "agent",
        "ray::RuntimeEnvAgent": "runtime_env_agent",
        "/x/python -u /x/ray/_private/runtime_env/agent/main.py --port=1": "runtime_env_agent",
        "/x/python -u /x/ray/autoscaler/_private/monitor.py --logs-dir=/t": "autoscaler",
        "/x/python -u /x/ray/autoscaler/v2/monitor.py --logs-dir=/t": "autoscaler",
        "/x/python -u /x/ray/_private/log_monitor.py --session-dir=/t": "log_monitor",
        "/x/python -m ray.util.client.server --address=127.0.0.1:1 --mode=proxy": "client_server",
        "/x/python -m ray.scripts.scripts start --head --port=1": "start",
        "ray::IDLE": "worker",
        "ray::train": "worker",
        "python train.py": "other",
    }
    assert {command: a_process(1, command=command).role for command in commands} == commands


def test_a_listing_of_ps_shows_marks_and_leaves_out_the_dead() -> None:
    listing = (
        "  501     1   501 Ss   /x/python x.py HOME=/Users/me RAYMC_SANDBOX=/private/tmp/raymc-1/0 A=b\n"
        "  502   501   501 Z    (python)\n"
        "  503     1   503 S    tail -f /private/tmp/raymc-1/0/x.log\n"
        "  504     0     0 S\n"
    )
    marked, tail = parse_ps(listing)
    assert (marked.pid, marked.parent, marked.session, marked.mark) == (501, 1, 501, "/private/tmp/raymc-1/0")
    assert (tail.pid, tail.mark) == (503, None)
