// work: run the jobs of a queue until so many have ended, and tell of each. "flaky" fails once, "hopeless" always; "gated"
// waits until there is a key "gate".
import { Worker } from 'bullmq';
import { Redis } from 'ioredis';

const [port, prefix, name, count, slow] = process.argv.slice(2);
const redis = new Redis({ host: '127.0.0.1', port: Number(port) });
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function handle(job) {
  await pause(Number(slow ?? 0));
  while (job.name === 'gated' && !(await redis.exists(`${prefix}:gate`))) {
    await pause(10);
  }
  if (job.name === 'hopeless' || (job.name === 'flaky' && job.attemptsMade === 0)) {
    throw new Error(`${job.name} does not work`);
  }
  return { by: 'node', data: job.data };
}

const worker = new Worker(name, handle, {
  connection: { host: '127.0.0.1', port: Number(port) },
  prefix,
  concurrency: 5,
  lockDuration: 2000,
  stalledInterval: 1000,
  maxStalledCount: 100,
});
let left = Number(count);
const ended = async (job) => {
  console.log(`ended ${job?.id}`);
  left -= 1;
  if (left === 0) {
    await worker.close();
    process.exit(0);
  }
};
worker.on('completed', ended);
worker.on('failed', (job) => job && job.attemptsMade >= (job.opts.attempts ?? 1) && ended(job));
worker.on('error', (error) => console.log(`error ${error.message}`));
await worker.waitUntilReady();
console.log('ready');
