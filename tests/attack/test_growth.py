"""No input is quadratic: whatever looks at text from outside takes time in proportion to its length."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from typing import Any, NamedTuple

import pytest
from tests.attack.outside_text import Pattern, inline_patterns, parsers, patterns
from tests.attack.worst_inputs import Grows, Made, Work, check_growth, check_pattern, cost_s, pumped

from ray_multicluster_scheduler.client import transport
from ray_multicluster_scheduler.core.lifecycle.attempt_request import CLAIM, MOST_CLAIM_CHARS, claim_of
from ray_multicluster_scheduler.dashboard import job_form
from ray_multicluster_scheduler.dashboard.pages import submit_page
from ray_multicluster_scheduler.environment import options, ray_needs, redact
from ray_multicluster_scheduler.environment.compose import OVERLAY_HOOK, OVERLAY_VAR, remove_overlay
from ray_multicluster_scheduler.environment.paths import map_paths, relative_script
from ray_multicluster_scheduler.environment.setup_failure import fails_again, setup_error
from ray_multicluster_scheduler.model.execution import InventoryRow
from ray_multicluster_scheduler.model.job import JobEvent
from ray_multicluster_scheduler.model.result import read_content
from ray_multicluster_scheduler.packages.tree import parse_patterns
from ray_multicluster_scheduler.ray_api import http_client, http_errors, parse
from ray_multicluster_scheduler.ray_client import messages
from ray_multicluster_scheduler.server import authentication, door, protocol, ray_jobs, ray_route
from ray_multicluster_scheduler.service import request as option_keys

#: A whole job. What is larger is a list of jobs.
MOST = 2**20
#: A request's head, and what is kept of a cluster's message about a job.
HEAD = 2**16
MESSAGE = 2**15
#: Patterns that see less than a whole job, by their module or by themselves.
SHORTER = {
    "environment/setup_failure.py": MESSAGE,
    "environment/redact.py:_UNFINISHED": redact._MOST_HELD,
    "ray_api/http_client.py": 2**18,
}
HOMES = ["/home/zorro", "/Users/zorro"]


class Case(NamedTuple):
    """A parser, and its worst inputs of any size."""

    work: Work
    texts: list[Made]
    most: int = MOST


def quietly(work: Callable[[Any], object], *errors: type[Exception]) -> Work:
    """Return a parser that refuses without a word."""

    def quiet(text: str) -> None:
        with suppress(ValueError, TypeError, RecursionError, *errors):
            work(text)

    return quiet


def of_bytes(work: Callable[[bytes], object]) -> Work:
    return quietly(lambda text: work(text.encode("latin-1")))


def rows(text: str) -> None:
    parser = http_client.RowParser()
    for at in range(0, len(text), 100):
        parser.feed(text[at : at + 100].encode())


def log_end(text: str) -> None:
    end = http_client.LogEnd(1000)
    for at in range(0, len(text), 1000):
        end.feed(text[at : at + 1000].encode())


SECRETS = ["aaaaaaaaaaaaaaab", "aaaaaaaab"]


def growing_text(text: str) -> None:
    shown = redact.GrowingText(SECRETS)
    for at in range(0, len(text), 1000):
        shown.add(text[at : at + 1000])
    shown.rest()


JSON = [
    pumped("[", end="]"),
    pumped('{"a":'),
    pumped('\\"', begin='{"a":"'),
    pumped("[],", begin="["),
    pumped("1", begin="["),
]
SHELL = [
    *map(
        pumped, ["/home/zorro:", "/home/zorro ", "/home/zorro", "/", "a", "=/home/zorro", '"/home/zorro', ":"]
    ),
    *(pumped(text, begin='"') for text in ("\\\\", '\\"', "a")),
    *(pumped(text, begin="sh -", end="!") for text in ("c", "-", "x")),
]
PIP = [
    pumped(" ", begin="a", end="b"),
    pumped(" ", begin="a", end="; python_version > '3'"),
    pumped("a[", end="]"),
]
PIP += [pumped(",==1", begin="a==1"), pumped(" --a"), pumped("(", begin="a; "), pumped("1.", begin="a==")]
COOKIE = authentication.COOKIE
EVENT_FIELDS = [field.name for field in fields(JobEvent)]
#: By the functions that `outside_text` finds.
CASES: dict[str, Case] = {
    "client/transport.py:_adapter": Case(
        quietly(lambda text: transport.record(JobEvent)(dict.fromkeys(EVENT_FIELDS, text))),
        [pumped("1"), pumped("1", begin="1."), pumped("a")],
    ),
    "core/lifecycle/attempt_request.py:claim_of": Case(
        lambda text: claim_of(InventoryRow("job", None, {CLAIM: text})), JSON, MOST_CLAIM_CHARS
    ),
    "environment/paths.py:map_paths": Case(lambda text: map_paths(text, HOMES, "/data/z"), SHELL),
    "environment/paths.py:relative_script": Case(relative_script, SHELL),
    "environment/options.py:requirement_of": Case(options.package_name, PIP, 2**19),
    "environment/options.py:is_below": Case(quietly(lambda text: options.is_below(text, "2")), PIP, 2**19),
    "environment/ray_needs.py:_from_conda": Case(
        ray_needs._from_conda, [pumped("="), pumped(">=1,"), pumped("1.")]
    ),
    "environment/ray_needs.py:_allows": Case(
        quietly(lambda text: ray_needs._allows(text, ray_route.Version("2.9"))),
        [pumped("==1,"), pumped("1", begin="=="), pumped("1.", begin="==", end="1")],
        2**19,
    ),
    "environment/ray_needs.py:_objection": Case(
        lambda text: ray_needs._objection((), ("uv",), text), [pumped("1."), pumped("1")], HEAD
    ),
    "environment/redact.py:_any_of": Case(
        lambda text: redact.redact_text(text, SECRETS), [pumped("a"), pumped("raymc_"), pumped("a://")]
    ),
    "environment/redact.py:GrowingText.__init__": Case(
        growing_text, [pumped("a"), pumped("raymc_"), pumped("raymc_!"), pumped("a://"), pumped("a:/")]
    ),
    "environment/compose.py:remove_overlay": Case(
        quietly(
            lambda text: remove_overlay(
                {"worker_process_setup_hook": OVERLAY_HOOK, "env_vars": {OVERLAY_VAR: text}}
            )
        ),
        JSON,
    ),
    "environment/setup_failure.py:setup_error": Case(
        setup_error,
        [
            pumped(text, begin="Output:\n")
            for text in (
                "Error",
                " from the runtime env {",
                "Output:\n",
                "(from versions: ",
                "a.",
                "ERROR: a\n",
            )
        ],
        MESSAGE,
    ),
    "environment/setup_failure.py:fails_again": Case(
        fails_again, [pumped("conda environment '' "), pumped("500 "), pumped("No such file ")], MESSAGE
    ),
    "model/result.py:read_content": Case(of_bytes(read_content), JSON),
    "packages/tree.py:_parse": Case(
        lambda text: parse_patterns([text]),
        [pumped(text, end=end) for text in (" ", "\\", "[", "**/") for end in ("", "x")],
        2**14,
    ),
    "ray_api/http_errors.py:_message_of": Case(http_errors._message_of, JSON),
    "ray_api/parse.py:json_object": Case(of_bytes(parse.json_object), JSON),
    "ray_api/http_client.py:RowParser.feed": Case(
        quietly(rows, http_errors.MalformedAnswer),
        [
            pumped('{"a": 1},', begin="["),
            pumped("[", begin='[{"a":'),
            pumped("x", begin='[{"a":"'),
            pumped(" ", begin="["),
        ],
    ),
    "ray_api/http_client.py:LogEnd.feed": Case(
        quietly(log_end, http_errors.MalformedAnswer),
        [pumped(text, begin='{"logs": "') for text in ("x", "\\\\", "\\n", "\\u0041", " ")],
    ),
    "ray_client/messages.py:read_job_config": Case(
        of_bytes(messages.read_job_config),
        [pumped(text, begin="\x80\x04") for text in ("N", "]", "}", "(", "K\x01", "\x94")],
    ),
    "ray_client/messages.py:_parsed": Case(
        of_bytes(lambda raw: messages._parsed(messages.pb.DataRequest, raw)), [pumped("\n"), pumped("\0")]
    ),
    "ray_client/messages.py:read_init": Case(
        of_bytes(messages.read_init),
        [
            lambda size: (
                messages.pb.DataRequest(init={"ray_init_kwargs": "[" * size})
                .SerializeToString()
                .decode("latin-1")
            )
        ],
    ),
    "server/door.py:_is_address": Case(
        quietly(door._is_address), [pumped(":"), pumped("1."), pumped("1")], HEAD
    ),
    "server/authentication.py:shown_credential": Case(
        lambda text: authentication.shown_credential({"cookie": text}),
        [pumped('\\"', begin=f'{COOKIE}="'), pumped(f"{COOKIE}=;"), pumped("a=b; "), pumped("=")],
        HEAD,
    ),
    "server/protocol.py:depth": Case(
        of_bytes(protocol.depth),
        [*JSON, pumped('\\"', begin="[" * 65 + '"'), pumped("[]"), pumped('""', begin="[" * 65)],
    ),
    "server/ray_jobs.py:request_of": Case(
        quietly(lambda text: ray_jobs.request_of(text.encode(), user="ann"), Exception), JSON
    ),
    "server/ray_route.py:_comparable": Case(
        quietly(ray_route._comparable), [pumped("1."), pumped("1")], HEAD
    ),
    "service/request.py:_json_object": Case(quietly(option_keys._json_object), JSON),
    "dashboard/pages/submit_page.py:_quoted": Case(
        submit_page._quoted, [pumped("'"), pumped('"'), pumped("$'")]
    ),
    "dashboard/job_form.py:_json": Case(quietly(job_form._json, Exception), JSON),
    "dashboard/job_form.py:read_mapping": Case(
        quietly(job_form.read_mapping, Exception), [pumped("{"), pumped("- "), pumped("a: ")], 2**12
    ),
}
#: Functions that parse no text from outside, or leave that to one of the cases; with the reason.
NO_CASE = {
    **dict.fromkeys(
        [
            "cli/options/completion.py:_cluster_names",
            "cli/options/submit.py:json_object",
            "cli/options/common.py:PlainCommand.parse_args",
            "client/transport.py:checked",
            "client/server_address.py:read_login",
            "client/transport.py:Transport.__init__",
            "config/find.py:server_url",
            "dashboard/words.py:catalogue",
            "local/head.py:answers",
            "local/head.py:parse_ps",
            "local/sandbox.py:StateDir.read",
            "local/spec.py:_token_variable",
            "packages/overlay/node/raymc_overlay.py:_installed",
            "client/init_ray.py:parse_environment",
            "raymc_pipeline/operators.py:CountVectorizer.on_ray.Counting._fit",
            "raymc_pipeline/plan.py:Plan.from_json",
            "raymc_pipeline/report.py:Report.from_json",
            "tasks/home.py:current_runtime_env",
            "tasks/lazy_import.py:_warn_of_newer_ray",
            "tasks/wire/bridge.py:Bridge._run_at_home",
            "tasks/ray_workers.py:RayWorkers.run.done",
            "tasks/wire/hub.py:Hub._remote_form",
            "tasks/wire/map_worker.py:_told",
            "tasks/wire/serialization.py:deserialize_error",
            "tasks/wire/serialization.py:deserialize",
            "tasks/wire/sessions.py:check_session",
        ],
        "runs for its user only, who wrote it or chose where it comes from",
    ),
    **dict.fromkeys(
        [
            "background.py:ControlFiles.record",
            "background.py:_message",
            "background.py:_read",
            "cli/registry.py:LazyGroup.resolve_command",
            "cluster_health/diagnosis.py:_security",
            "inspection/doctor.py:examine",
            "cluster_health/tcp_port.py:_is_loopback",
            "cluster_health/tcp_port.py:head_state",
            "config/store_place.py:_read",
            "config/store_place.py:same_address",
            "dashboard/cluster_view.py:web_address",
            "executors/registry.py:_load",
            "ray_api/http_errors.py:place",
            "server/server_options.py:ServerOptions.names",
            "server/server_options.py:is_loopback",
            "store/schema/rows.py:_names_from",
            "tasks/pool_driver.py:PoolDriver._on_sensed",
            "store/schema/rows.py:_spec_from",
        ],
        "reads what this scheduler was configured with, or has written itself",
    ),
    **dict.fromkeys(
        [
            "raymc_relay/frames.py:number",
            "raymc_relay/frames.py:parse_goaway",
            "raymc_relay/frames.py:parse_prefix",
        ],
        "reads some bytes",
    ),
    **dict.fromkeys(
        [
            "cluster_health/diagnosis.py:_ray_version",
            "inspection/doctor.py:found_in",
            "dashboard/pages/jobs_page.py:_Jobs._moved",
            "dashboard/mount.py:bind_sockets.connecting",
            "environment/redact.py:_any_of",
            "ray_client/messages.py:_check_opcodes",
            "server/login_page.py:log_in",
        ],
        "one call of a library that is measured below, or by another case",
    ),
}


def used(pattern: re.Pattern[Any], method: str) -> Work:
    """Return the use of a pattern."""
    call = getattr(pattern, method)

    def work(text: str) -> None:
        given = text if isinstance(pattern.pattern, str) else text.encode("latin-1")
        if method == "sub":
            call(given[:0], given)
        elif method == "finditer":
            for _ in call(given):
                pass
        else:
            call(given)

    return work


def growths(found: Pattern) -> Iterator[str]:
    """Yield how a pattern grows too much, by the method that uses it."""
    most = SHORTER.get(found.where, SHORTER.get(found.where.partition(":")[0], MOST))
    for method in sorted(found.methods):
        try:
            check_pattern(used(found.pattern, method), found.pattern, most)
        except Grows as problem:
            yield f"{found.where} {method}: {problem}"


# One item for all: to find the patterns costs more than most of them, and each worker would have to do it.
def test_no_pattern_is_quadratic() -> None:
    found = list(patterns())
    assert len(found) > 50
    assert [growth for each in found for growth in growths(each)] == []


@pytest.mark.parametrize("name", list(CASES))
def test_no_parser_is_quadratic(name: str) -> None:
    case = CASES[name]
    for made in case.texts:
        check_growth(case.work, made, case.most)


def test_every_parser_has_a_case() -> None:
    found = {*parsers(), *inline_patterns()}
    assert found - {*CASES, *NO_CASE} == set()
    assert NO_CASE.keys() - found == set()  # they are gone


#: Patterns of an earlier version, and what stopped a server.
QUADRATIC = {
    "depth of JSON": (re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL), "sub", '\\"'),
    "pip requirements": (re.compile(r"\s+(?:--|#).*"), "sub", " "),
    "words of a path": (re.compile(r"[^\s;&|<>(]*$"), "search", "a"),
    "complaints of pip": (
        re.compile(r"(?:ERROR|error|\w*(?:Error|Exception|NotFound)\w*):"),
        "match",
        "Error",
    ),
    "quoted environments": (
        re.compile(r" from the runtime env \{.*?\} (?=doesn't)", re.DOTALL),
        "sub",
        " from the runtime env {",
    ),
    "a missing environment": (
        re.compile(r"conda environment '[^']*' .*doesn't exist", re.DOTALL),
        "search",
        "conda environment '' ",
    ),
    "options of a shell": (re.compile(r"-|-[a-zA-Z]*[cs][a-zA-Z]*"), "fullmatch", "c"),
}


@pytest.mark.parametrize("name", list(QUADRATIC))
def test_the_patterns_that_were_quadratic_are_found(name: str) -> None:
    pattern, method, text = QUADRATIC[name]
    begin = "-" if method == "fullmatch" else ""
    with pytest.raises(Grows):
        check_growth(used(pattern, method), pumped(text, begin=begin, end=" "), MOST)


def test_nobody_has_to_know_the_text_that_makes_a_pattern_slow() -> None:
    pattern, method, _ = QUADRATIC["pip requirements"]
    with pytest.raises(Grows):
        check_pattern(used(pattern, method), pattern, MOST)


def test_the_longest_entrypoint_costs_the_engine_next_to_nothing() -> None:
    for made in SHELL:
        text = made(500_000)
        costs = (cost_s(lambda text: map_paths(text, HOMES, "/data/z"), text) for _ in range(5))
        # 20 to 80 ms by the kind of text; what grows with the square takes minutes on the slowest machine.
        assert min(costs) < 0.5, text[:40]


def test_python_reads_json_as_fast_as_it_comes() -> None:
    for made in JSON:
        check_growth(quietly(json.loads), made, MOST)
