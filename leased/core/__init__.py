"""What decides and does no I/O: no sockets, no clock, no files."""
