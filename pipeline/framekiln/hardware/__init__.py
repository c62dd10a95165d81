"""Memory and speed of steps on GPUs: measured by calibration, estimated for other GPUs by prediction."""
