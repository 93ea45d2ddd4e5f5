-- close: grant no token of a bucket for so long. A longer closure stays.
INSERT INTO {schema}.buckets (name, closed_until)
VALUES (%(bucket)s, clock_timestamp() + make_interval(secs => %(seconds)s))
ON CONFLICT (name) DO UPDATE SET closed_until = greatest(buckets.closed_until, excluded.closed_until)
