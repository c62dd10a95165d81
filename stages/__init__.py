"""The stages: one noun a file, each adding columns to rows (first pass) or writing tables (second pass)."""
