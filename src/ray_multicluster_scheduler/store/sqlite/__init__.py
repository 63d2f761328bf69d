"""A store on SQLite: files on a local disk that several threads and processes share."""
