// slots: when cron patterns come next, as BullMQ finds it: of each [pattern, zone, milliseconds] the milliseconds of its next slot.
import { getNextMillis } from 'bullmq';

const asked = JSON.parse(process.argv[2]);
console.log(JSON.stringify(asked.map(([pattern, tz, after]) => getNextMillis(after, { pattern, tz }) ?? null)));
