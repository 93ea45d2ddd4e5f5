// cluster: add jobs to a queue of a Redis Cluster, and print their ids and what its counts say then.
import { Queue } from 'bullmq';
import { Cluster } from 'ioredis';

const [port, prefix, name, jobs] = process.argv.slice(2);
const connection = new Cluster([{ host: '127.0.0.1', port: Number(port) }]);
const queue = new Queue(name, { connection, prefix });
const ids = [];
for (const { task, data } of JSON.parse(jobs)) {
  ids.push((await queue.add(task, data)).id);
}
console.log(JSON.stringify({ ids, counts: await queue.getJobCounts() }));
await queue.close();
connection.disconnect();
