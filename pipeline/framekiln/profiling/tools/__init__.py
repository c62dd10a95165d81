"""Profilers of single steps, which a person turns on by name."""
