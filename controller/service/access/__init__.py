"""Identity, authorization, tokens, rate limits and the audit log."""
