"""Code contexts in sandboxes: interpreters that keep their state, reached through the agent."""
