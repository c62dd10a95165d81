"""Output for people: the terminal, the HTML report, and comparisons of runs."""
