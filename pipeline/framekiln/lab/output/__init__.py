"""Files of a bench: figures as JSON and tables as CSV."""
