"""Connections between the daemons of a job's nodes: proven who speaks, and nothing else."""
