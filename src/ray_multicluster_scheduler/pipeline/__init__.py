"""Preprocessing pipelines: one list of operators, run by Ray Data on a cluster or by pandas on one machine.

Importing this package imports neither Ray nor pandas: those come with the extra `[pipeline]`.
"""
