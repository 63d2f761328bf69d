"""Tasks and actors: where each one runs, and how the results of other clusters become home ObjectRefs.

Nothing here imports Ray before it is needed: importing it costs a second or more.
"""
