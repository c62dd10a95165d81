"""The commands of `framemill`, a module each."""
