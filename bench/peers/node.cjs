// What the contestants in Node share: the commands of producer.py and the marks of marks.py.
const fs = require('fs');

const AT_ONCE = 1000;
const WARM = 2000;
const now = () => process.hrtime.bigint(); // the clock of Python's time.monotonic_ns
const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));
const payload = (n) => ({ n, s: 'x'.repeat(100) });
const marked = () => fs.existsSync(process.env.BENCH_MARKS) && fs.statSync(process.env.BENCH_MARKS).size >= 16;

let file;
const record = Buffer.alloc(16);

function mark(number) {
  file ??= fs.openSync(process.env.BENCH_MARKS, 'a', 0o600);
  record.writeBigInt64LE(BigInt(number), 0);
  record.writeBigInt64LE(now(), 8);
  fs.writeSync(file, record);
}

async function fill({ many }, from, to) {
  for (let start = from; start < to; start += AT_ONCE) {
    const length = Math.min(AT_ONCE, to - start);
    await many(Array.from({ length }, (_, i) => payload(start + i)));
  }
}

async function timed(producer, how, jobs) {
  await fill(producer, jobs, jobs + WARM);
  const began = now();
  if (how === 'bulk') await fill(producer, 0, jobs);
  else for (let number = 0; number < jobs; number++) await producer.one(payload(number));
  return { seconds: Number(now() - began) / 1e9 };
}

async function spaced({ one }, jobs) {
  await one(payload(-1));
  while (!marked()) await pause(0.01);
  await pause(1);
  const sent = [];
  for (let number = 0; number < jobs; number++) {
    await pause(0.02 + Math.random() * 0.03);
    sent.push(Number(now()));
    await one(payload(number));
  }
  return { sent };
}

// `open` answers with how one payload and many are enqueued, and how to close; `setup` is optional there.
async function produce(open, how, jobs) {
  const producer = await open();
  try {
    if (how === 'setup') return await producer.setup();
    if (how === 'fill') return await fill(producer, 0, jobs);
    return how === 'spaced' ? await spaced(producer, jobs) : await timed(producer, how, jobs);
  } finally {
    await producer.close();
  }
}

function main(open, work) {
  const [how, ...rest] = process.argv.slice(2);
  if (how === 'work') work(...rest.map(Number));
  else produce(open, how, Number(rest[0])).then((answer) => console.log(JSON.stringify(answer ?? {})));
}

module.exports = { main, mark };
