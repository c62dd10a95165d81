"""The cost of a run, here and on GPUs that one need not own: bounds, estimates, back-tests."""
