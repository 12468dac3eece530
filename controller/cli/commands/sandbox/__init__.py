"""Commands for a sandbox as a whole: its state and why, its use, its snapshots."""
