"""A GPU that computes nothing, to rehearse on: docs/hardware/rehearsing.md."""
