"""Import paths of the older package of this name."""
