"""What people read: log lines, durations, phrases, and what must not be shown. Imports nothing of the other packages."""
