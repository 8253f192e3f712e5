"""What the benchmarks of placement simulate: several nodes in one time, and placement where memory
moves."""
