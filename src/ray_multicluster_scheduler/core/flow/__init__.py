"""How fast: how many starts at once, which cluster is left alone, how often to look."""
