"""No input is quadratic: whatever looks at text from outside takes time in proportion to its length."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from tests.attack.outside_text import Pattern, inline_patterns, parsers, patterns
from tests.attack.worst_inputs import Grows, Made, Work, check_growth, check_pattern, cost_s, pumped

from ray_multicluster_scheduler.core.lifecycle.attempt_request import CLAIM, MOST_CLAIM_CHARS, claim_of
from ray_multicluster_scheduler.dashboard.parts import form_text, job_as_code
from ray_multicluster_scheduler.environment import ray_needs, redact, requirements
from ray_multicluster_scheduler.environment.overlay import OVERLAY_HOOK, OVERLAY_VAR, remove_overlay
from ray_multicluster_scheduler.environment.paths import map_paths, relative_script
from ray_multicluster_scheduler.environment.setup_failure import fails_again, setup_error
from ray_multicluster_scheduler.model.execution import InventoryRow
from ray_multicluster_scheduler.packages.gitignore import parse_patterns
from ray_multicluster_scheduler.ray_api import http_errors, parse, stream
from ray_multicluster_scheduler.ray_client import job_config, messages
from ray_multicluster_scheduler.server import allow_list, authentication, body_limit, ray_submit, ray_version
from ray_multicluster_scheduler.service import option_keys

#: A whole job. What is larger is a list of jobs.
MOST = 2**20
#: A request's head, and what is kept of a cluster's message about a job.
HEAD = 2**16
MESSAGE = 2**15
#: Patterns that see less than a whole job, by their module or by themselves.
SHORTER = {
    "environment/setup_failure.py": MESSAGE,
    "environment/redact.py:_UNFINISHED": redact._MOST_HELD,
    "ray_api/stream.py": 2**18,
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
    parser = stream.RowParser()
    for at in range(0, len(text), 100):
        parser.feed(text[at : at + 100].encode())


def log_end(text: str) -> None:
    end = stream.LogEnd(1000)
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
#: By the functions that `outside_text` finds.
CASES: dict[str, Case] = {
    "core/lifecycle/attempt_request.py:claim_of": Case(
        lambda text: claim_of(InventoryRow("job", None, {CLAIM: text})), JSON, MOST_CLAIM_CHARS
    ),
    "environment/paths.py:map_paths": Case(lambda text: map_paths(text, HOMES, "/data/z"), SHELL),
    "environment/paths.py:relative_script": Case(relative_script, SHELL),
    "environment/requirements.py:requirement_of": Case(requirements.package_name, PIP, 2**19),
    "environment/requirements.py:is_below": Case(
        quietly(lambda text: requirements.is_below(text, "2")), PIP, 2**19
    ),
    "environment/ray_needs.py:_from_conda": Case(
        ray_needs._from_conda, [pumped("="), pumped(">=1,"), pumped("1.")]
    ),
    "environment/ray_needs.py:_allows": Case(
        quietly(lambda text: ray_needs._allows(text, ray_version.Version("2.9"))),
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
    "environment/overlay.py:remove_overlay": Case(
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
    "packages/gitignore.py:_parse": Case(
        lambda text: parse_patterns([text]),
        [pumped(text, end=end) for text in (" ", "\\", "[", "**/") for end in ("", "x")],
        2**14,
    ),
    "ray_api/http_errors.py:_message_of": Case(http_errors._message_of, JSON),
    "ray_api/parse.py:json_object": Case(of_bytes(parse.json_object), JSON),
    "ray_api/stream.py:RowParser.feed": Case(
        quietly(rows, http_errors.MalformedAnswer),
        [
            pumped('{"a": 1},', begin="["),
            pumped("[", begin='[{"a":'),
            pumped("x", begin='[{"a":"'),
            pumped(" ", begin="["),
        ],
    ),
    "ray_api/stream.py:LogEnd.feed": Case(
        quietly(log_end, http_errors.MalformedAnswer),
        [pumped(text, begin='{"logs": "') for text in ("x", "\\\\", "\\n", "\\u0041", " ")],
    ),
    "ray_client/job_config.py:read_job_config": Case(
        of_bytes(job_config.read_job_config),
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
    "server/allow_list.py:_is_address": Case(
        quietly(allow_list._is_address), [pumped(":"), pumped("1."), pumped("1")], HEAD
    ),
    "server/authentication.py:shown_credential": Case(
        lambda text: authentication.shown_credential({"cookie": text}),
        [pumped('\\"', begin=f'{COOKIE}="'), pumped(f"{COOKIE}=;"), pumped("a=b; "), pumped("=")],
        HEAD,
    ),
    "server/body_limit.py:depth": Case(
        of_bytes(body_limit.depth),
        [*JSON, pumped('\\"', begin="[" * 65 + '"'), pumped("[]"), pumped('""', begin="[" * 65)],
    ),
    "server/ray_submit.py:request_of": Case(
        quietly(lambda text: ray_submit.request_of(text.encode(), user="ann"), Exception), JSON
    ),
    "server/ray_version.py:_comparable": Case(
        quietly(ray_version._comparable), [pumped("1."), pumped("1")], HEAD
    ),
    "service/option_keys.py:_json_object": Case(quietly(option_keys._json_object), JSON),
    "dashboard/parts/job_as_code.py:_quoted": Case(
        job_as_code._quoted, [pumped("'"), pumped('"'), pumped("$'")]
    ),
    "dashboard/parts/form_text.py:_json": Case(quietly(form_text._json, Exception), JSON),
    "dashboard/parts/form_text.py:read_mapping": Case(
        quietly(form_text.read_mapping, Exception), [pumped("{"), pumped("- "), pumped("a: ")], 2**12
    ),
}
#: Functions that parse no text from outside, or leave that to one of the cases; with the reason.
NO_CASE = {
    **dict.fromkeys(
        [
            "cli/options/completion.py:_cluster_names",
            "cli/options/request.py:json_object",
            "cli/options/parsing.py:PlainCommand.parse_args",
            "client/http_responses.py:checked",
            "client/server_address.py:read_login",
            "client/transport.py:Transport.__init__",
            "config/server_url.py:server_url",
            "dashboard/words.py:catalogue",
            "local/head.py:answers",
            "local/processes.py:parse_ps",
            "local/sandbox_state.py:StateDir.read",
            "local/spec.py:_token_variable",
            "packages/overlay/node/raymc_overlay.py:_installed",
            "pipeline/connect.py:parse_environment",
            "pipeline/operators/text.py:CountVectorizer.on_ray.Counting._fit",
            "pipeline/pipeline_plan.py:Plan.from_json",
            "pipeline/report.py:Report.from_json",
            "tasks/home.py:current_runtime_env",
            "tasks/lazy_import.py:_warn_of_newer_ray",
            "tasks/wire/bridge.py:Bridge._run_at_home",
            "tasks/wire/hub.py:Hub._remote_form",
            "tasks/wire/remote_errors.py:deserialize_error",
            "tasks/wire/serialization.py:deserialize",
            "tasks/wire/session_check.py:check_session",
        ],
        "runs for its user only, who wrote it or chose where it comes from",
    ),
    **dict.fromkeys(
        [
            "background/control.py:ControlFiles.record",
            "background/control.py:_message",
            "background/launch.py:_read",
            "cli/lazy_group.py:LazyGroup.resolve_command",
            "cluster_health/diagnosis.py:_security",
            "cluster_health/examine.py:examine",
            "cluster_health/tcp_port.py:_is_loopback",
            "cluster_health/tcp_port.py:head_state",
            "config/store_owner.py:_read",
            "config/store_owner.py:same_address",
            "dashboard/parts/cluster_words.py:web_address",
            "ray_api/http_errors.py:place",
            "server/server_options.py:ServerOptions.names",
            "server/server_options.py:is_loopback",
            "store/schema/rows.py:_names_from",
            "store/schema/rows.py:_spec_from",
        ],
        "reads what this scheduler was configured with, or has written itself",
    ),
    **dict.fromkeys(
        [
            "ray_client/http2/frames.py:number",
            "ray_client/http2/frames.py:parse_goaway",
            "ray_client/http2/frames.py:parse_prefix",
        ],
        "reads some bytes",
    ),
    **dict.fromkeys(
        [
            "cluster_health/diagnosis.py:_ray_version",
            "cluster_health/trial.py:found_in",
            "dashboard/pages/jobs_page.py:_Jobs._moved",
            "dashboard/sockets.py:bind_sockets.connecting",
            "environment/redact.py:_any_of",
            "ray_client/job_config.py:_check_opcodes",
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


@pytest.mark.parametrize("found", list(patterns()), ids=lambda found: found.where)
def test_no_pattern_is_quadratic(found: Pattern) -> None:
    most = SHORTER.get(found.where, SHORTER.get(found.where.partition(":")[0], MOST))
    for method in sorted(found.methods):
        check_pattern(used(found.pattern, method), found.pattern, most)


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
