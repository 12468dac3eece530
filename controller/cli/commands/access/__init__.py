"""Commands for who may do what, and who did: identity, tokens, secrets, the audit log."""
