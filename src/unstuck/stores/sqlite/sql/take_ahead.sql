-- take_ahead: let tokens that were taken before the clock was put back return one interval from now.
UPDATE token SET free_at = :free_at WHERE bucket = :bucket AND free_at > :latest
