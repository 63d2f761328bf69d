"""A store on PostgreSQL, for several schedulers on several machines."""
