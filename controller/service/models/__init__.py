"""Model servers, and the keys and callers of the model gateway."""
