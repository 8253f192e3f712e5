"""gpu-lease-placer, on slurmctld's host: where pending jobs with labels or shares fit, and when."""
