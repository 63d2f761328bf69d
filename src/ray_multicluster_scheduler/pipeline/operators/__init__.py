"""The operators of pipelines, one file per family."""
