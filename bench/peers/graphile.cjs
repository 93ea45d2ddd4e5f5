// graphile-worker in Node: `work 24 500 0` runs 24 jobs at the same time, from a local queue of 500, and completes without
// waiting for more.
const { Logger, makeWorkerUtils, run } = require('graphile-worker');
const { main, mark } = require('./node.cjs');

const connectionString = process.env.BENCH_URL;
const logger = new Logger(() => () => {});

async function open() {
  const utils = await makeWorkerUtils({ connectionString, logger });
  return {
    setup: () => utils.migrate(),
    one: (payload) => utils.addJob('work', payload),
    many: (payloads) => utils.addJobs(payloads.map((payload) => ({ identifier: 'work', payload }))),
    close: () => utils.release(),
  };
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

main(open, work);
