-- clock: the server's time, and for how many seconds it has been up.
SELECT clock_timestamp(), extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::double precision
