// tree: add a flow as FlowProducer takes it, and print the ids of its jobs by their names.
import { FlowProducer } from 'bullmq';

const [port, prefix, , flow] = process.argv.slice(2);
const flows = new FlowProducer({ connection: { host: '127.0.0.1', port: Number(port) }, prefix });
const ids = {};
const note = ({ job, children }) => {
  ids[job.name] = job.id;
  (children ?? []).forEach(note);
};
note(await flows.add(JSON.parse(flow)));
console.log(JSON.stringify(ids));
await flows.close();
