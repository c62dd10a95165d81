"""What each stage takes of a card, and how fast it is there alone: measured once, then planned and predicted with."""
