"""The command line `raymc`: thin commands over the library, one file per group."""
