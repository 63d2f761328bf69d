"""The use cases: submit, stop, look, wait, explain, drain. The API, `raymc` and the server all call these."""
