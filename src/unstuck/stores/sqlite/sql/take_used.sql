-- take_used: how many tokens are out, and when the first of them returns.
SELECT count(*), min(free_at) FROM token WHERE bucket = :bucket
