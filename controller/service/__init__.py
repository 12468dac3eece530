"""The use-cases of users, over the ports. No HTTP, click, Docker or SQL."""
