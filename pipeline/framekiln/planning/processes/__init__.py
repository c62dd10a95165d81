"""Steps to processes on machines, wave by wave."""
