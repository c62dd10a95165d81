"""The owners of worker processes: `ray/` and `local/`, behind one interface (`base`)."""
