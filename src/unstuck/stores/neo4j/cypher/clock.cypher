// clock: the server's time.
RETURN datetime.realtime().epochMillis AS answer
