"""Care for a store as a whole: look at it, back it up, restore it, move it to another place."""
