// now: the graph's clock. timestamp() would be the begin of the statement, before it waited for a lock.
RETURN {now}
