"""A fake and a real cluster behind the same client."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from tests.support.builders import a_cluster
from tests.support.waiting import PATIENCE_S

from ray_multicluster_scheduler.ray_api import HttpConnection
from ray_multicluster_scheduler.testing import FakeRay

#: A loaded machine needs its time to answer and to unpack; the deadline itself is tested on the fake.
PATIENT_S = PATIENCE_S
#: What the shared sandbox gives to the cluster that `real_head` is.
REAL_CPUS = 4


@dataclass(frozen=True, kw_only=True)
class Target:
    """A cluster that the contract must hold for, and what is known about it."""

    connection: HttpConnection
    cpus: float


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.ray)])
async def target(request: pytest.FixtureRequest) -> AsyncIterator[Target]:
    if request.param == "fake":
        async with (
            FakeRay(cpus=2) as fake,
            HttpConnection(fake.spec(), request_timeout_s=PATIENT_S) as connection,
        ):
            yield Target(connection=connection, cpus=2)
    else:
        head = request.getfixturevalue("real_head")
        spec = a_cluster("real", dashboard=head.dashboard)
        async with HttpConnection(spec, request_timeout_s=PATIENT_S) as connection:
            yield Target(connection=connection, cpus=REAL_CPUS)
