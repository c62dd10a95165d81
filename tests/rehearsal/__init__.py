"""A GPU that computes nothing, to rehearse on: docs/rehearsing.md."""
