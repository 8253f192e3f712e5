"""How the daemons of a job on several nodes agree on one lease. No I/O and no clock."""
