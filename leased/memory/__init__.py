"""What is in the memory of each device, as a model: pure."""
