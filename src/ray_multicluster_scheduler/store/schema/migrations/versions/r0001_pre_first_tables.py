"""Where migrations begin: the first tables. A new store is made from `tables`, not by migrations.

What a store of this revision looked like is recorded in `tests/contract/store/recordings`.
"""

revision = "r0001_pre"
down_revision = None


def upgrade() -> None:
    """Do nothing: a store of this revision has its tables."""
