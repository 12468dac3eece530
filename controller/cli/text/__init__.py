"""Text for people and programs: tables, JSON paths, progress, and this process's terminal."""
