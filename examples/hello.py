"""One job: submitted, waited for, and what it has printed. It runs on the cluster that suits it best."""

from ray_multicluster_scheduler import submit_job

job = submit_job("echo hello from $RAY_MULTICLUSTER_CLUSTER", job_id="hello")
print(job.wait().logs())
print(job.summary())
print(job.explain())
