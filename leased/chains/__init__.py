"""Chains: jobs of one user that pass each other buffers by handle, and how they divide a GPU."""
