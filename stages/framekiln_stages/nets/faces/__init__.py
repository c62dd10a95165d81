"""Face detectors and recognition networks."""
