-- delete_events: a job's events go with it.
DELETE FROM event WHERE job = :id AND queue = :queue
