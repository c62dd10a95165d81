"""What `import framekiln` gives: functions with the options of the commands, and typed results.

A module each for what is returned or given: `request` (with `options` and `steps`), `plan`, `run` (with `progress`),
`output` (with `summary` and `frames`), `compare`, `bench`. The commands print what these return.
"""
