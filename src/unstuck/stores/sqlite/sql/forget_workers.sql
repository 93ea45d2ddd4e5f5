-- forget_workers: drop workers that have been silent for long, so that the table stays small.
DELETE FROM worker WHERE seen_at < :before
