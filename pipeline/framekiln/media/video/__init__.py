"""Videos to frames and sound."""
