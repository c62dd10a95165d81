"""The command line: its options, messages and exit codes; the commands are in `commands` and `bench`."""
