"""The job of a form as a command line, which the real one must read, and as a program."""

import ast
import subprocess
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler import submit_job
from ray_multicluster_scheduler.cli.commands import submit as command
from ray_multicluster_scheduler.cli.registry import app
from ray_multicluster_scheduler.dashboard.pages import submit_page
from ray_multicluster_scheduler.dashboard.pages.submit_page import as_command, as_python
from ray_multicluster_scheduler.service.request import JobRequest, array_of, parse_array

#: Lets a real shell split a line, as it would for `raymc`.
SHELL = "raymc() { printf '%s\\0' \"$@\"; }\n"
WORD = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8).filter(str.strip) | (
    st.sampled_from(["--", "-x", "it's", '"', "$HOME", "a b", "*", "\\", "`id`", "{i}", "#"])
)
AMOUNT = st.integers(0, 100) | st.floats(0, 1000)
MAYBE_SECONDS = st.none() | st.floats(0.5, 1e6)


def _names(*others: str) -> st.SearchStrategy[str]:
    return st.sampled_from(["tpu", "a b", "x=y", *others])


REQUESTS = st.builds(
    JobRequest,
    entrypoint=WORD,
    user=st.just("ann"),
    job_id=st.none() | WORD,
    runtime_env=st.none() | st.fixed_dictionaries({"env_vars": st.dictionaries(WORD, WORD)}),
    metadata=st.none() | st.dictionaries(WORD, WORD, max_size=2),
    resource_requirements=st.none() | st.dictionaries(_names("CPU", "GPU", "memory"), AMOUNT),
    entrypoint_resources=st.none() | st.dictionaries(_names(), AMOUNT),
    entrypoint_label_selector=st.none() | st.just({"zone": "!in(west,east)"}),
    tags=st.lists(WORD, max_size=2),
    preferred_cluster=st.none() | WORD,
    priority=st.integers(-5, 5),
    depends_on=st.lists(WORD, max_size=2),
    max_retries=st.integers(0, 5),
    timeout_s=MAYBE_SECONDS,
    queue_timeout_s=MAYBE_SECONDS,
    on_unreachable=st.sampled_from(["wait", "fail", 2.5]),
    entrypoint_num_cpus=st.none() | AMOUNT,
    entrypoint_num_gpus=st.none() | AMOUNT,
    entrypoint_memory=st.none() | st.integers(0, 2**40),
    group=st.none() | WORD,
    stop_children=st.booleans(),
)


class Read(Exception):
    """What the command line has understood. It ends the command before anything is opened."""

    def __init__(self, request: JobRequest, array: str | None) -> None:
        super().__init__()
        self.request = request
        self.array = array


def understood(line: str) -> Read:
    """Let the real command line read what was printed, up to the request."""
    split = subprocess.run(["sh", "-c", SHELL + line], capture_output=True, check=True)
    words = split.stdout.decode().split("\0")[:-1]
    reader: Any = typer.main.get_command(app)
    context = reader.make_context("raymc", [*words])
    name, reader, words = reader.resolve_command(context, words)
    context = reader.make_context(name, [*words], parent=context)

    def stop_here(request: JobRequest, array: str | None) -> None:
        raise Read(request, array)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "_numbered", stop_here)
        patch.delenv("RAY_MULTICLUSTER_SUBMISSION_ID", raising=False)
        with pytest.raises(Read) as read:
            reader.invoke(context)
    return read.value


def comparable(request: JobRequest) -> dict[str, Any]:
    """Return a request without what only tells the way that it came: the user, and keys of the metadata."""
    metadata = {k: v for k, v in (request.metadata or {}).items() if not k.startswith("raymc.")}
    amounts = ("resource_requirements", "entrypoint_resources", "runtime_env")
    empty = {name: getattr(request, name) or None for name in amounts}
    return {**dict(request), **empty, "user": "", "metadata": metadata}


@given(REQUESTS)
def test_the_command_line_asks_for_the_same_job(request: JobRequest) -> None:
    read = understood(as_command(request))
    assert comparable(read.request) == comparable(request)
    assert read.array is None


def test_an_array_has_its_option() -> None:
    request = JobRequest(entrypoint="python /data/work.py --part {i}", user="ann", job_id="part {i}")
    read = understood(as_command(request, "0-9,20"))
    assert comparable(read.request) == comparable(request)
    assert read.array == "0-9,20"


@pytest.mark.parametrize(
    ("entrypoint", "written"),
    [
        ("python -c 'print(1)'", "python -c 'print(1)'"),
        ("FOO=1 python /data/x.py --lr 0.1", "FOO=1 python /data/x.py --lr 0.1"),
        ("sleep 5; echo done", "'sleep 5; echo done'"),
        ("echo 'a'; echo done", "\"echo 'a'; echo done\""),
        ('echo "it\'s $HOME"', '"echo \\"it\'s \\$HOME\\""'),
        ("echo 'unfinished", '"echo \'unfinished"'),
    ],
)
def test_a_command_is_quoted_as_a_person_would(entrypoint: str, written: str) -> None:
    request = JobRequest(entrypoint=entrypoint, user="ann")
    line = as_command(request)
    assert line == f"raymc submit -- {written}"
    assert understood(line).request.entrypoint == entrypoint


def test_a_short_command_line_is_one_line() -> None:
    assert as_command(JobRequest(entrypoint="sleep 1", user="ann", priority=2)) == (
        "raymc submit --priority 2 -- sleep 1"
    )


@given(REQUESTS)
def test_the_program_passes_the_same_arguments(request: JobRequest) -> None:
    (call,) = (node for node in ast.walk(ast.parse(as_python(request))) if isinstance(node, ast.Call))
    assert isinstance(call.func, ast.Name)
    assert call.func.id == submit_job.__name__
    arguments = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    assert comparable(JobRequest(**arguments, user="ann")) == comparable(request)


@given(st.sampled_from(["3", "0-9", "0-100:10", "0-9,20", "9,1-3"]), REQUESTS)
def test_the_program_of_an_array_submits_the_same_jobs(indices: str, request: JobRequest) -> None:
    request = request.replaced(entrypoint=f"{request.entrypoint} {{i}}", group=None)
    code = compile(as_python(request, parse_array(indices)), "program", "exec")
    made: list[dict[str, Any]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ray_multicluster_scheduler.submit_jobs", made.extend)
        exec(code, {})
    (group,) = {each["group"] for each in made}
    wanted = array_of(request.replaced(submission_id=group), parse_array(indices))
    assert [comparable(JobRequest(**each, user="ann")) for each in made] == list(map(comparable, wanted))


def test_no_option_is_forgotten() -> None:
    assert {*submit_page._ARGUMENTS, *submit_page.NOT_IN_THE_FORM} == set(JobRequest.model_fields)
