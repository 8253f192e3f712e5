"""Jobs on several nodes: one lease for all their GPUs, or none."""
