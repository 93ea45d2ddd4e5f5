"""The lease protocol: jobs, leases, outcomes, errors, the retry rule, and what every store must do."""
