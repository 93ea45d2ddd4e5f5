"""The terms of the queues under attack, which the driver and the checks must know, too."""

LEASE, HEARTBEAT = 4.0, 1.0  # seconds
RATE, PER = 20, 2.0  # starts, seconds
