"""Reading and writing objects: apply, patch, create, replace, delete, claims."""
