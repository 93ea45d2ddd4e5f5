-- running: how many jobs of a queue are being processed.
SELECT count(*) FROM job WHERE status = 'processing' AND queue = :queue
