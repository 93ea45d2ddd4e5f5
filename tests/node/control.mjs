// control: let a queue do one thing and print what it answers, such as pause, resume or setGlobalConcurrency 2.
import { Queue } from 'bullmq';

const [port, prefix, name, method, ...args] = process.argv.slice(2);
const queue = new Queue(name, { connection: { host: '127.0.0.1', port: Number(port) }, prefix });
console.log(JSON.stringify((await queue[method](...args.map((arg) => JSON.parse(arg)))) ?? null));
await queue.close();
