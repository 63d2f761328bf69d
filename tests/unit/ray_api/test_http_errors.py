"""Answers recorded on a real head of Ray 2.60 (shortened), and the errors that they become."""

import pytest
from tests.support.builders import a_cluster

from ray_multicluster_scheduler.errors import (
    ClusterAuthFailed,
    ClusterBadAnswer,
    ClusterError,
    ClusterRefused,
    RemoteJobExists,
    RemoteJobNotFound,
)
from ray_multicluster_scheduler.ray_api.http_errors import place, ray_words, refusal

TRACEBACK = """\
Traceback (most recent call last):
  File "<site-packages>/ray/dashboard/modules/job/job_head.py", line 419, in submit_job
    resp = await job_agent_client.submit_job_internal(submit_request)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
RuntimeError: Request failed with status code 400: Traceback (most recent call last):
  File "<site-packages>/ray/dashboard/modules/job/job_manager.py", line 553, in submit_job
    raise ValueError(
{last_line}
.
"""
DUPLICATE = "ValueError: Job with submission_id full_1 already exists. Please use a different submission_id."
NOT_ENDED = "RuntimeError: Attempted to delete job 'slp', but it is in a non-terminal state RUNNING."
BAD_KEY = "TypeError: JobSubmitRequest.__init__() got an unexpected keyword argument 'key'"
TOO_MANY = "Given limit 100000 exceeds the supported limit 10000."

GOLDEN: list[tuple[int, str, type[ClusterError], str]] = [
    (500, TRACEBACK.format(last_line=DUPLICATE), RemoteJobExists, DUPLICATE),
    (500, TRACEBACK.format(last_line=NOT_ENDED), ClusterRefused, NOT_ENDED),
    (400, TRACEBACK.format(last_line=BAD_KEY), ClusterRefused, BAD_KEY),
    (404, "Job nope does not exist", RemoteJobNotFound, "Job nope does not exist"),
    (404, "404: Not Found", ClusterRefused, "404: Not Found"),
    (404, "Package gcs://p.zip does not exist", ClusterRefused, "Package gcs://p.zip does not exist"),
    (400, "Can only get logs of submission type jobs", ClusterRefused, "Can only get logs"),
    (405, "'POST' method not allowed for browser traffic.", ClusterRefused, "browser traffic"),
    (413, "Maximum request body size 104857600 exceeded.", ClusterRefused, "104857600"),
    (500, "500 Internal Server Error\n\nServer got itself in trouble", ClusterRefused, "in trouble"),
    (400, f'{{"result": false, "msg": "{TOO_MANY}", "data": {{"result": null}}}}', ClusterRefused, TOO_MANY),
    (401, "Unauthorized: Missing authentication token", ClusterAuthFailed, "auth_token_env"),
    (403, "Forbidden: Invalid authentication token", ClusterAuthFailed, "auth_token_env"),
    (302, "", ClusterBadAnswer, "redirects"),
    (503, "", ClusterRefused, "without a reason"),
]


@pytest.mark.parametrize(("status", "body", "expected", "words"), GOLDEN, ids=[row[3][:40] for row in GOLDEN])
def test_every_answer_becomes_its_own_error(
    status: int, body: str, expected: type[ClusterError], words: str
) -> None:
    error = refusal(a_cluster("a"), status, body)

    assert type(error) is expected
    assert words in str(error)
    assert "Traceback" not in str(error)
    assert str(error).startswith("cluster 'a': ")
    if isinstance(error, ClusterRefused):
        assert (error.status, "Traceback" in error.body) == (status, False)


@pytest.mark.parametrize(
    ("variable", "status", "words"),
    [
        (None, 401, "name that variable with `auth_token_env`"),
        ("A_TOKEN", 401, "A_TOKEN is not set"),
        ("A_TOKEN", 403, "does not accept the token in the environment variable A_TOKEN"),
    ],
)
def test_a_token_problem_says_which_variable_to_look_at(
    variable: str | None, status: int, words: str
) -> None:
    assert words in str(refusal(a_cluster(auth_token_env=variable), status, ""))


def test_secrets_and_long_texts_do_not_get_into_words() -> None:
    words = ray_words("bad value s3cr3t-token for X=1" + "x" * 1000, hidden=["s3cr3t-token", "1"])
    assert words.startswith("bad value *** for X=1x")
    assert len(words) == 300


def test_a_password_in_the_address_is_not_shown() -> None:
    assert place(a_cluster(dashboard="https://ann:pa55@ray.example:8265/x")) == "https://ray.example:8265"


def test_a_web_page_is_called_one_instead_of_being_shown() -> None:
    page = "<!DOCTYPE html>\n<html><body><h1>It works!</h1></body></html>"
    assert "answered 404: a web page that is not Ray's" in str(refusal(a_cluster("a"), 404, page))
