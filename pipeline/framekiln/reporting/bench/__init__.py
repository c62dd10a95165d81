"""The bench's figures for people: terminal, page, comparison and history."""
