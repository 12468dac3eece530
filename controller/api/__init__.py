"""THE HTTP DOOR. It turns requests into calls of service/ and back; it decides nothing."""
