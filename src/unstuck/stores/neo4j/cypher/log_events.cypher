// log_events: write routine events.
WITH $logged AS logged
{logged}
RETURN size(logged) AS answer
