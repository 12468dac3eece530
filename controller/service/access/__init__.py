"""Identity, authorisation, tokens, rate limits and the audit log."""
