"""Commands for agents and what they use: MCP, models, E2B's clients, workflows, projects, plugins."""
