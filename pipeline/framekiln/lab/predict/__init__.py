"""What a run costs, here and on GPUs that nobody has to own: bounds, estimates, back-tests."""
