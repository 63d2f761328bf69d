"""Import paths that users already have.

The modules below keep their names: re-exporting a function of the same name here would hide them.
"""
