// BullMQ in Node, with the same commands as the Python contestants (see producer.py and marks.py).
// `work 100` runs a hundred jobs at the same time.
const fs = require('fs');
const { Queue, Worker } = require('bullmq');

const AT_ONCE = 1000;
const WARM = 2000;
const url = new URL(process.env.BENCH_URL);
const connection = { host: url.hostname, port: +url.port, db: +url.pathname.slice(1) };
const now = () => process.hrtime.bigint(); // the clock of Python's time.monotonic_ns
const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

let file;
const record = Buffer.alloc(16);

function mark(number) {
  file ??= fs.openSync(process.env.BENCH_MARKS, 'a', 0o600);
  record.writeBigInt64LE(BigInt(number), 0);
  record.writeBigInt64LE(now(), 8);
  fs.writeSync(file, record);
}

const marked = () => fs.existsSync(process.env.BENCH_MARKS) && fs.statSync(process.env.BENCH_MARKS).size >= 16;
const payload = (n) => ({ n, s: 'x'.repeat(100) });

async function many(queue, from, to) {
  for (let start = from; start < to; start += AT_ONCE) {
    const length = Math.min(AT_ONCE, to - start);
    await queue.addBulk(Array.from({ length }, (_, i) => ({ name: 'work', data: payload(start + i) })));
  }
}

async function timed(queue, how, jobs) {
  await many(queue, jobs, jobs + WARM);
  const began = now();
  if (how === 'bulk') await many(queue, 0, jobs);
  else for (let number = 0; number < jobs; number++) await queue.add('work', payload(number));
  return { seconds: Number(now() - began) / 1e9 };
}

async function spaced(queue, jobs) {
  await queue.add('work', payload(-1));
  while (!marked()) await pause(0.01);
  await pause(1);
  const sent = [];
  for (let number = 0; number < jobs; number++) {
    await pause(0.02 + Math.random() * 0.03);
    sent.push(Number(now()));
    await queue.add('work', payload(number));
  }
  return { sent };
}

async function produce(how, jobs) {
  const queue = new Queue('q', { connection });
  await queue.waitUntilReady();
  try {
    if (how === 'fill') return await many(queue, 0, jobs);
    return how === 'spaced' ? await spaced(queue, jobs) : await timed(queue, how, jobs);
  } finally {
    await queue.close();
  }
}

function work(concurrency) {
  const patient = { ...connection, maxRetriesPerRequest: null };
  const worker = new Worker('q', async (job) => mark(job.data.n), { connection: patient, concurrency });
  worker.on('error', (error) => console.error(error));
}

const [how, ...rest] = process.argv.slice(2);
if (how === 'work') work(Number(rest[0]));
else produce(how, Number(rest[0])).then((answer) => console.log(JSON.stringify(answer ?? {})));
