"""Estimates of a run on another GPU, from measurements on one and its data sheet, with back-tests."""
