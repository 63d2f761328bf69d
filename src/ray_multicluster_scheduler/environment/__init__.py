"""The environment a job runs in: what the cluster says and what the job says, put together."""
