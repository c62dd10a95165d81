"""Measurements: one model alone, by layer, precision and batch; calibration of a GPU; prediction for others."""
