// look: print what a queue's getters say, and all events since the beginning.
import { Queue, QueueEvents } from 'bullmq';

const [port, prefix, name] = process.argv.slice(2);
const connection = { host: '127.0.0.1', port: Number(port) };
const queue = new Queue(name, { connection, prefix });
const jobs = {};
for (const job of await queue.getJobs()) {
  const { name: task, data, attemptsMade, failedReason, stacktrace, returnvalue, progress, priority, delay } = job;
  const state = await job.getState();
  jobs[job.id] = { task, data, state, attemptsMade, failedReason, stacktrace, returnvalue, progress, priority, delay };
}
const events = [];
const heard = new QueueEvents(name, { connection, prefix, lastEventId: '0-0' });
for (const kind of ['added', 'waiting', 'active', 'progress', 'delayed', 'completed', 'failed', 'retries-exhausted',
  'stalled', 'removed', 'paused', 'resumed']) {
  heard.on(kind, ({ jobId }) => events.push([kind, jobId ?? null]));
}
await heard.waitUntilReady();
await new Promise((resolve) => setTimeout(resolve, 500));
console.log(JSON.stringify({ counts: await queue.getJobCounts(), paused: await queue.isPaused(), jobs, events }));
await heard.close();
await queue.close();
