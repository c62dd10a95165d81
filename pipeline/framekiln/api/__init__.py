"""The names of `import framekiln`: functions with the commands' options, and typed results.

Each noun has a module: `request` (with `options`), `plan`, `run` (with `watch`), `output` (with `summary`),
`compare`, `bench`. The commands take the same options and print the same results.
"""
