"""The environment that a job runs in, composed of its cluster's `runtime_env` and its own."""
