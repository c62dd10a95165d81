"""Models of the bench: names, factories, example inputs, stages."""
