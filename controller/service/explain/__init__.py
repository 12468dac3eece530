"""Explanations of an object's state, and of the effects of a change."""
