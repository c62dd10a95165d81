"""What a person sees of a run: figures, progress and the report."""
