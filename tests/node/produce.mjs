// produce: add jobs to a queue and print their ids.
import { Queue } from 'bullmq';

const [port, prefix, name, jobs] = process.argv.slice(2);
const queue = new Queue(name, { connection: { host: '127.0.0.1', port: Number(port) }, prefix });
const added = [];
for (const { task, data, opts } of JSON.parse(jobs)) {
  added.push((await queue.add(task, data, opts)).id);
}
console.log(JSON.stringify(added));
await queue.close();
