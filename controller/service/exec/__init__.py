"""Use of a running sandbox: it is awake and occupied while a command or stream goes on; limits, records, relays."""
