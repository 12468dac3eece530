"""What the deciders share: context, plan builder, back-off, events."""
