"""The cost of a run, here and on GPUs that nobody has to own: bounds, estimates, back-tests."""
