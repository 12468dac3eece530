"""Carrying out the planner's actions, one engine call each."""
