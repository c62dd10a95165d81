"""From the two YAML files that a person writes to a checked plan (`plan`)."""
