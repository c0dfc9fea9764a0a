"""MinT."""
