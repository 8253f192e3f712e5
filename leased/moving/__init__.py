"""A job's processes are taken from one GPU of the node to another."""
