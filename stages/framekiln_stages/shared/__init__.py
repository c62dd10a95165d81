"""Algorithms that several stages use."""
