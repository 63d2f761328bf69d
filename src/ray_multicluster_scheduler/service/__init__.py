"""The use cases: submit, stop, look, wait, explain, drain. Every front door calls these."""
