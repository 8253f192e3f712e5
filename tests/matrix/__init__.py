"""This checkout on the releases of Slurm that Debian has."""
