"""The lifecycle of a job: observations, retries, stops, and the transitions that follow."""
