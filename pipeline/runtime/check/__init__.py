"""What is damaged in an output, and its removal."""
