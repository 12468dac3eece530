"""Input and output of the planner: snapshot, instance records, actions, plan, outcomes."""
