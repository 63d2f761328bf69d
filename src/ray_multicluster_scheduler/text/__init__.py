"""Text for people: spelling suggestions, and output that is safe for a terminal."""
