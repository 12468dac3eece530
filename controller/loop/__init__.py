"""THE HEARTBEAT: wakes, one turn, workers, and the schedule that only marks things due. Knows ports, not rooms."""
