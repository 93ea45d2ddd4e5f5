-- close: grant no token of a bucket until then. A longer closure stays.
INSERT INTO bucket (name, closed_until) VALUES (:bucket, :until)
ON CONFLICT (name) DO UPDATE SET closed_until = max(closed_until, excluded.closed_until)
