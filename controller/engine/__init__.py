"""Observing and acting: the only package that calls Docker and the kernel (ports.Engine, Streams, UsageReader)."""
