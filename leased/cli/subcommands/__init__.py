"""The subcommands of gpu-leasectl: one file each, whose name is the subcommand's.

SUMMARY: one line for --help. run(): carries it out with the parsed arguments; the errors that it
may raise are those that ctl.main() turns into exit statuses. add_arguments(), where it has any of
its own: declares them; every subcommand has --json.
"""
