-- log_quarantined: write the event of a job that cannot be read, without reading it.
INSERT INTO event (at, type, queue, job, details)
SELECT :now, 'quarantined', queue, id, :details FROM job WHERE seq = :seq
