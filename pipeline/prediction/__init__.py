"""What another card would do: an estimate from what was measured on one, back-tested before it is shown."""
