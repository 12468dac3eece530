"""Explanations of decisions, and previews of plans."""
