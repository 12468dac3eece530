"""Using a sandbox: exec, files, logs, ports, attestation, usage."""
