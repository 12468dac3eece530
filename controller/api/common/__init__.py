"""Models, errors and query parameters that routes share."""
