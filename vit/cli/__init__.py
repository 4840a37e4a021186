"""The command line, one file a kind of command."""
