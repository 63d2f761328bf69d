"""The first message of a client, and what becomes of it."""

import json
import pickle

import pytest
from ray.core.generated import ray_client_pb2 as pb
from ray.job_config import JobConfig

from ray_multicluster_scheduler.environment.compose import HOOK_VAR
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.ray_client import messages
from ray_multicluster_scheduler.ray_client.messages import Unreadable, read_init
from ray_multicluster_scheduler.ray_client.sessions import session_request


def init(kwargs: str = '{"log_to_driver": true}', env: dict[str, object] | None = None) -> bytes:
    config = JobConfig()
    config.set_runtime_env(env if env is not None else {"env_vars": {"A": "b"}})
    request = pb.InitRequest(
        job_config=pickle.dumps(config), ray_init_kwargs=kwargs, reconnect_grace_period=7
    )
    return pb.DataRequest(req_id=5, init=request).SerializeToString()


def test_the_environment_is_replaced_in_both_places_and_the_rest_stays() -> None:
    found = read_init(init())
    assert found.runtime_env == {"env_vars": {"A": "b"}}
    written = pb.DataRequest.FromString(found.composed({"env_vars": {"C": "d"}}, {"raymc.job": "s"}))
    assert (written.req_id, written.init.reconnect_grace_period) == (5, 7)
    assert json.loads(written.init.ray_init_kwargs) == {
        "log_to_driver": True,
        "runtime_env": {"env_vars": {"C": "d"}},
    }
    config = pickle.loads(written.init.job_config)
    assert (config.runtime_env, config.metadata) == ({"env_vars": {"C": "d"}}, {"raymc.job": "s"})


def test_the_workers_of_a_session_are_told_their_hook_which_ray_client_would_forget() -> None:
    written = pb.DataRequest.FromString(read_init(init()).composed({"worker_process_setup_hook": "a.b"}, {}))
    assert pickle.loads(written.init.job_config).runtime_env["env_vars"] == {HOOK_VAR: "a.b"}


def test_an_environment_among_the_arguments_counts_where_the_configuration_has_none() -> None:
    given = init('{"runtime_env": {"env_vars": {"X": "y"}}}', env={})
    assert read_init(given).runtime_env == {"env_vars": {"X": "y"}}


def test_a_refusal_answers_the_request_with_its_reason() -> None:
    answer = pb.DataResponse.FromString(read_init(init()).refused("no room"))
    assert (answer.req_id, answer.init.ok, answer.init.msg) == (5, False, "no room")
    assert not messages.is_accepted(answer.SerializeToString())
    assert messages.refusal_in(messages.refused_unread(init(), "no token")) == "no token"


@pytest.mark.parametrize("kwargs", ["[1]", "{", "1", '"x"'])
def test_arguments_that_are_no_object_are_refused(kwargs: str) -> None:
    with pytest.raises(InvalidRequest, match=r"arguments of ray\.init"):
        read_init(init(kwargs))


def test_another_first_message_is_no_begin() -> None:
    with pytest.raises(Unreadable, match="must be Init"):
        read_init(messages.cleanup())
    with pytest.raises(Unreadable, match="no DataRequest"):
        read_init(b"\xff\xff\xff")


def test_only_packages_are_taken_before_a_session() -> None:
    assert messages.uploaded(pb.KVPutRequest(key=b"gcs://p.zip", value=b"x").SerializeToString()) == (
        "p.zip",
        b"x",
    )
    with pytest.raises(InvalidRequest, match="only packages"):
        messages.asked_for(pb.KVExistsRequest(key=b"session_name").SerializeToString())


def test_the_options_of_a_session_come_with_its_metadata() -> None:
    metadata = {"raymc.cpus": "2", "raymc.cluster": "b", "raymc.ray": "2.9", "raymc.python": "3.9", "x": "y"}
    request, client = session_request(
        metadata, read_init(init()), user="ann", submission_id="session-1", address="10.0.0.5"
    )
    assert (request.resource_requirements, request.preferred_cluster) == ({"CPU": 2.0}, "b")
    assert (request.user, request.submission_id) == ("ann", "session-1")
    assert (client.address, client.ray, client.python) == ("10.0.0.5", "2.9", "3.9")


def test_an_option_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"did you mean 'raymc\.cpus'"):
        session_request(
            {"raymc.cpu": "2"}, read_init(init()), user="ann", submission_id="session-1", address="h"
        )
