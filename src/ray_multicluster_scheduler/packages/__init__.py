"""Local code for clusters: packed at submit, kept by content, uploaded right before a job starts."""
