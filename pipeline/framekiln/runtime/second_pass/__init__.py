"""The second pass: steps that write tables, and the final assembly."""
