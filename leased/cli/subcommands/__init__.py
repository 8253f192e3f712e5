"""The subcommands of gpu-leasectl: one file each, whose name is the subcommand's.

SUMMARY: one line for --help. run(): carries it out with the parsed arguments, and returns its exit
status; None: it is done. The errors that it may raise are those that ctl.main() turns into exit
statuses. add_arguments(), where it has any of its own: declares them; every subcommand has --json.
"""
