-- next_end: in how many seconds the next lease ends that has not ended yet.
SELECT extract(epoch FROM min({lease}) - clock_timestamp())::double precision FROM {table} AS job
WHERE {status} = {processing} AND {lease} >= now() AND {lease} < now() + interval '8 days'
