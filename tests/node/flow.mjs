// flow: add a parent with children, and print their ids: the parent's first.
import { FlowProducer } from 'bullmq';

const [port, prefix, queueName, children] = process.argv.slice(2);
const flows = new FlowProducer({ connection: { host: '127.0.0.1', port: Number(port) }, prefix });
const added = await flows.add({
  name: 'whole',
  queueName,
  data: {},
  children: JSON.parse(children).map(({ task, opts }) => ({ name: task, queueName, data: {}, opts })),
});
console.log(JSON.stringify([added.job.id, ...added.children.map(({ job }) => job.id)]));
await flows.close();
