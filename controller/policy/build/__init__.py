"""Image builds: what a Dockerfile may say, and what a tag may be. Pure."""
