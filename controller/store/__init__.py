"""REMEMBERING: the only room that speaks SQL. `sql_store.SqlStore` is the `ports.Store` over SQLite or PostgreSQL."""
