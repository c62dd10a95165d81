"""Networks, as published or read from their files."""
