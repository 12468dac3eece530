"""WHAT A USER CAN ASK. Use-cases over the ports; they know no HTTP, no click, no Docker and no SQL."""
