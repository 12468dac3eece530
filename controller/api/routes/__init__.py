"""Route handlers, one module a resource."""
