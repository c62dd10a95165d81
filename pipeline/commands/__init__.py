"""Commands that would make cli.py too long, and the options that commands share."""
