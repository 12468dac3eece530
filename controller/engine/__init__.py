"""SEEING AND DOING. The only room that speaks to Docker and the kernel: ports.Engine, Streams, UsageReader."""
