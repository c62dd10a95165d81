"""The parts of every page and of the terminal."""
