"""The background scheduler of a store, as programs find, start and tell it; and as a child of a server."""
