"""Data that several kinds share: names, labels, quantities, owner references."""
