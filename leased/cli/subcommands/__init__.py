"""The subcommands of gpu-leasectl: one file each. leased/cli/subcommand.py is the seam."""
