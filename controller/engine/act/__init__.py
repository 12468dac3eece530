"""Actions of the planner, carried out with one engine call each."""
