"""Photos and animations to frames."""
