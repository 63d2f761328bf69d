"""Import paths that users already have; everything here is re-exported."""
