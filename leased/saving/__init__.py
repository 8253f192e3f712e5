"""A job's processes and their GPU memory are saved to files and restored, perhaps elsewhere.

All of it runs as the job's user, in the job: `gpu-leasectl run` starts a program and stays with it.
"""
