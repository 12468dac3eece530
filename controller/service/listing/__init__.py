"""Lists of objects: selectors, pages, tables, serialization."""
