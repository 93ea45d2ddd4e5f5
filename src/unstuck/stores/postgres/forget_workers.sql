-- forget_workers: drop workers that have been silent for long, so that the table stays small.
DELETE FROM {schema}.workers WHERE seen_at < clock_timestamp() - make_interval(secs => %(seconds)s)
