"""Damage in an output, and its removal."""
