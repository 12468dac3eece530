"""Laboratories: engines and networks of the tests' own, which may be broken at will."""
