"""Tasks and actors: which cluster runs each one, and how remote results become home ObjectRefs.

Nothing here imports Ray before it is needed: importing it costs a second or more.
"""
