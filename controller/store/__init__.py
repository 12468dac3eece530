"""Store: the only package with SQL. `sql_store.SqlStore` is the `ports.Store` over SQLite or PostgreSQL."""
