"""Security levels and profiles, and what each allows."""
