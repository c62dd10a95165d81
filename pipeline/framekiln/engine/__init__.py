"""The owners of worker processes: `ray/` and `local/`, behind one seam.

engine     what a job asks of either, and the choice between them
group      steps that share a process, their work and their packets
sampler    metrics of one machine
"""
