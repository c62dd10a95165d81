"""The commands of `framekiln`, a module each."""
