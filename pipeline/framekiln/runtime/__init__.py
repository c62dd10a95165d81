"""The work of one process, from packets to parts of results."""
