"""What operators and interfaces ask: Jobs is the door, JobTables the one to other systems' tables; explain, doctor, health, metrics."""
