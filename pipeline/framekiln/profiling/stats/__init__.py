"""Statistics over records of calls and packets."""
