"""THE NOUNS: frozen data that every other room speaks in. Pure: no I/O, no clock, no randomness, no logging."""
