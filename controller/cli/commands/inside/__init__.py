"""Commands that reach into a sandbox: programs, files, ports, logs."""
