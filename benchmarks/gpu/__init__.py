"""Acceptance of Framekiln on a GPU: correctness, ceilings, shares, memory, processes, the engine, calibration."""
