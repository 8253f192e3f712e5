"""What programs of jobs may use of gpu-lease."""
