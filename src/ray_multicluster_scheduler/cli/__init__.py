"""The command line `raymc`: thin commands over the library. `registry` lists them; `main` is the entry point.

`commands` has one module per command or group, `options` reads what was typed, `views` shows the answer.
"""
