"""THE COMMAND-LINE DOOR: a client of the daemon. Nothing heavy is imported before a command needs it."""
