"""Chains: jobs of one user on one GPU that pass each other buffers by handle, and how they divide it."""
