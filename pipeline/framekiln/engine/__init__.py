"""The owners of worker processes: `ray/` and `local/`, behind one seam.

engine       what a job asks of either, and the choice between them
group        steps that share a process, and their packets
decode_tasks the division of files among decode tasks
reporter     a worker's connection to its run's state
run_state    that state: events, attempts, the error that stops the run
sampler      metrics of one machine
"""
