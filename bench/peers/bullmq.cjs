// BullMQ in Node: `work 100` runs a hundred jobs at the same time.
const { Queue, Worker } = require('bullmq');
const { main, mark } = require('./node.cjs');

const url = new URL(process.env.BENCH_URL);
const connection = { host: url.hostname, port: +url.port, db: +url.pathname.slice(1) };

async function open() {
  const queue = new Queue('q', { connection });
  await queue.waitUntilReady();
  return {
    one: (data) => queue.add('work', data),
    many: (payloads) => queue.addBulk(payloads.map((data) => ({ name: 'work', data }))),
    close: () => queue.close(),
  };
}

function work(concurrency) {
  const patient = { ...connection, maxRetriesPerRequest: null };
  const worker = new Worker('q', async (job) => mark(job.data.n), { connection: patient, concurrency });
  worker.on('error', (error) => console.error(error));
}

main(open, work);
