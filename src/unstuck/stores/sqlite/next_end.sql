-- next_end: when the next lease ends.
SELECT min(lease_until) FROM job WHERE status = 'processing'
