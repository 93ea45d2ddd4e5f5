-- take: hand out one token.
INSERT INTO token (bucket, free_at) VALUES (?, ?)
