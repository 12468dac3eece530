"""Answers of E2B's envd, which would run inside a sandbox: commands, files, watches of folders."""
