"""The same job on every cluster: each runs it with its own Ray and its own Python, however old.

A job is sent as text over HTTP, so the versions may differ. To try it, let one cluster be older:

    raymc local up --names old,new --python old=/opt/py39/bin/python
"""

from ray_multicluster_scheduler import list_clusters, submit_jobs

PROGRAM = "import platform, ray; print('Python', platform.python_version(), 'and Ray', ray.__version__)"

jobs = submit_jobs(
    {"entrypoint": f'python -c "{PROGRAM}"', "only_cluster": name, "job_id": f"versions of {name}"}
    for name in list_clusters()
)
for job in jobs.as_completed():
    versions = [line for line in job.logs().splitlines() if line.startswith("Python ")]
    print(f"{job.cluster}: {job.status}, {' '.join(versions)}")
