"""From the two YAML files that a person writes to a checked plan.

manifest        the pipeline file and the profile; settings
stage_building  a stage for each step
lineage         producers and readers of columns and tables; steps that run, by their weights
gpu/            models that share a GPU
processes/      steps that share a process, and the machines
plan            all of it
"""
