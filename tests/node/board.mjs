// board: what bull-board's API lists of a queue.
import { createBullBoard } from '@bull-board/api';
import { BullMQAdapter } from '@bull-board/api/bullMQAdapter';
import { ExpressAdapter } from '@bull-board/express';
import { Queue } from 'bullmq';
import express from 'express';

const [port, prefix, name] = process.argv.slice(2);
const queue = new Queue(name, { connection: { host: '127.0.0.1', port: Number(port) }, prefix });
const serverAdapter = new ExpressAdapter();
createBullBoard({ queues: [new BullMQAdapter(queue)], serverAdapter });
const server = express().use('/', serverAdapter.getRouter()).listen(0, '127.0.0.1');
await new Promise((resolve) => server.once('listening', resolve));
const { port: own } = server.address();
const answer = await fetch(`http://127.0.0.1:${own}/api/queues?activeQueue=${name}&status=latest&page=1&jobsPerPage=50`);
console.log(JSON.stringify({ status: answer.status, ...(await answer.json()) }));
server.close();
await queue.close();
process.exit(0);
