"""Labs: private engines and networks, which tests may break."""
