"""Measurements in the formats of other tools."""
