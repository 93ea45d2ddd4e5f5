-- log_events: write an event.
INSERT INTO event (at, type, queue, job, details) VALUES (?, ?, ?, ?, ?)
