"""A cluster of booted machines with Slurm's and our packages, as a site has it."""
