"""What application code uses: the app, its tasks, calls and handles, the running job's context, schedules."""
