"""The tables of a store, their migrations, and how records become rows."""
