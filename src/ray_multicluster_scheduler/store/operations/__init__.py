"""The operations on the tables of a store. Plain SQLAlchemy: nothing here depends on one database."""
