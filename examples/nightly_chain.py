"""Every night: extract, then transform, then report. Each step starts when the one before has succeeded.

Run it from cron. A second run on the same day finds the jobs of the first and repeats nothing.
"""

import tempfile
from datetime import datetime
from pathlib import Path

from ray_multicluster_scheduler import Job, Jobs, submit_job

DAY = f"{datetime.now().astimezone():%Y-%m-%d}"
#: All clusters of `raymc local up` see this folder; yours share one over NFS, or s3://.
FOLDER = Path(tempfile.gettempdir()) / f"nightly-{DAY}"

STEPS = {
    "extract": f"mkdir -p {FOLDER} && seq 1 100 > {FOLDER}/numbers",
    "transform": f"awk '{{ print $1 * $1 }}' {FOLDER}/numbers > {FOLDER}/squares",
    "report": f"awk '{{ sum += $1 }} END {{ print \"the sum is\", sum }}' {FOLDER}/squares",
}

chain: list[Job] = []
for name, command in STEPS.items():
    step = submit_job(
        command,
        job_id=f"nightly {name}",
        depends_on=chain[-1:],
        idempotency_key=f"nightly {name} of {DAY}",
        max_retries=2,
        timeout_s=3600,
    )
    chain.append(step)

print(chain[-1].explain())
Jobs(chain).wait()
for step in chain:
    print(step.summary())
print(chain[-1].logs(tail=3))
