"""What the server remembers."""
