"""Several hosts on one store: where objects are, which hosts there are."""
