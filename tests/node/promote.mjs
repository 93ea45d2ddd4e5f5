// promote: let a delayed job be due now.
import { Queue } from 'bullmq';

const [port, prefix, name, id] = process.argv.slice(2);
const queue = new Queue(name, { connection: { host: '127.0.0.1', port: Number(port) }, prefix });
await (await queue.getJob(id)).promote();
console.log('null');
await queue.close();
