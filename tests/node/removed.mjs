// removed: let a queue remove jobs of its own, in one of the ways that BullMQ has for it.
import { Queue } from 'bullmq';

const [port, prefix, name, way, ...ids] = process.argv.slice(2);
const queue = new Queue(name, { connection: { host: '127.0.0.1', port: Number(port) }, prefix });
if (way === 'remove') {
  for (const id of ids) {
    await (await queue.getJob(id)).remove();
  }
} else if (way === 'clean') {
  await queue.clean(0, 1000, 'failed');
  await queue.clean(0, 1000, 'completed');
} else {
  await queue.obliterate({ force: true });
}
console.log('null');
await queue.close();
