"""The verbs of the command. Each parses its arguments, calls the memory, and prints what it answers."""
