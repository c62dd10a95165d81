"""Facts of the device itself while a model is measured: its limits, its state, its energy."""
