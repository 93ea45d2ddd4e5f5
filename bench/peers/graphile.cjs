// graphile-worker in Node, with the same commands as the Python contestants (see producer.py and marks.py).
// `work 24 500 0` runs 24 jobs at the same time, from a local queue of 500, and completes without waiting for more.
const fs = require('fs');
const { Logger, makeWorkerUtils, run } = require('graphile-worker');

const AT_ONCE = 1000;
const WARM = 2000;
const connectionString = process.env.BENCH_URL;
const logger = new Logger(() => () => {});
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

async function many(utils, from, to) {
  for (let start = from; start < to; start += AT_ONCE) {
    const length = Math.min(AT_ONCE, to - start);
    await utils.addJobs(Array.from({ length }, (_, i) => ({ identifier: 'work', payload: payload(start + i) })));
  }
}

async function timed(utils, how, jobs) {
  await many(utils, jobs, jobs + WARM);
  const began = now();
  if (how === 'bulk') await many(utils, 0, jobs);
  else for (let number = 0; number < jobs; number++) await utils.addJob('work', payload(number));
  return { seconds: Number(now() - began) / 1e9 };
}

async function spaced(utils, jobs) {
  await utils.addJob('work', payload(-1));
  while (!marked()) await pause(0.01);
  await pause(1);
  const sent = [];
  for (let number = 0; number < jobs; number++) {
    await pause(0.02 + Math.random() * 0.03);
    sent.push(Number(now()));
    await utils.addJob('work', payload(number));
  }
  return { sent };
}

async function produce(how, jobs) {
  const utils = await makeWorkerUtils({ connectionString, logger });
  try {
    if (how === 'setup') return await utils.migrate();
    if (how === 'fill') return await many(utils, 0, jobs);
    return how === 'spaced' ? await spaced(utils, jobs) : await timed(utils, how, jobs);
  } finally {
    await utils.release();
  }
}

async function work(concurrency, size, delay) {
  const batched = { localQueue: { size }, completeJobBatchDelay: delay, failJobBatchDelay: delay };
  const runner = await run({
    connectionString,
    logger,
    concurrency,
    preset: { worker: size ? batched : {} },
    taskList: { work: async ({ n }) => mark(n) },
  });
  await runner.promise;
}

const [how, ...rest] = process.argv.slice(2);
if (how === 'work') work(...rest.map(Number));
else produce(how, Number(rest[0])).then((answer) => console.log(JSON.stringify(answer ?? {})));
