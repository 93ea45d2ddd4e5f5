-- enqueue_existing: the content of the job that has the address already.
SELECT digest FROM job WHERE id = :id AND queue = :queue
