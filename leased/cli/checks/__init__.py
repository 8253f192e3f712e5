"""The checks of gpu-leasectl check: a file for each thing, whose findings() says what it saw."""
