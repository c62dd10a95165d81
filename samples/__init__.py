"""A small collection for trials, made from photos that dependencies ship."""
