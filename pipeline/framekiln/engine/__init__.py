"""The owners of worker processes: `ray/` and `local/`, behind one seam.

engine     what a job asks of either, and the choice between them
group      steps that share a process, their work and their packets
run_state  what the processes of a run tell, and their connections to it
sampler    metrics of one machine
"""
