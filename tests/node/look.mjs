// look: print what a queue's getters say, and all events since the beginning, as a listener hears them.
import { Queue, QueueEvents } from 'bullmq';
import { Redis } from 'ioredis';

const [port, prefix, name] = process.argv.slice(2);
const connection = { host: '127.0.0.1', port: Number(port) };
const queue = new Queue(name, { connection, prefix });
const jobs = {};
for (const job of await queue.getJobs()) {
  const { name: task, data, attemptsMade, failedReason, stacktrace, returnvalue, progress, priority, delay, opts } = job;
  const { processedOn, finishedOn, processedBy } = job;
  const [state, { logs }] = [await job.getState(), await queue.getJobLogs(job.id)];
  jobs[job.id] = { task, data, state, attemptsMade, failedReason, stacktrace, returnvalue, progress, priority, delay, opts,
    processedOn, finishedOn, processedBy, logs };
}
const metrics = { completed: await queue.getMetrics('completed'), failed: await queue.getMetrics('failed') };
const [counts, paused] = [await queue.getJobCounts(), await queue.isPaused()];

const redis = new Redis(connection);
const [last] = await redis.xrevrange(`${prefix}:${name}:events`, '+', '-', 'COUNT', 1);
const events = [];
const heard = new QueueEvents(name, { connection, prefix, lastEventId: '0-0' });
const all = new Promise((resolve) => {
  const emit = heard.emit.bind(heard);
  heard.emit = (kind, ...said) => {
    const id = said.at(-1); // "drained" comes with nothing else
    if (typeof id === 'string' && /^\d+-\d+$/.test(id)) {
      if (!kind.includes(':')) {
        events.push([kind, said[0].jobId ?? null]);
      }
      if (id === last[0]) {
        resolve();
      }
    }
    return emit(kind, ...said);
  };
});
await (last ? all : null);
console.log(JSON.stringify({ counts, paused, jobs, events, metrics }));
await heard.close();
await queue.close();
redis.disconnect();
