"""What the child that asks NVML says of a device that does not answer, and its readers look for.

By itself, so that the child, for which each start of the daemon waits, imports no more than that.
"""

SILENT = "it does not answer NVML"
