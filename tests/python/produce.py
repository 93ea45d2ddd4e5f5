"""produce: add jobs to a queue by BullMQ's own package for Python, one by one and then together; print their ids."""

import asyncio
import json
import sys

from bullmq import Queue


async def main(port: str, prefix: str, name: str, single: str, bulk: str) -> None:
    where = {"connection": {"host": "127.0.0.1", "port": int(port)}, "prefix": prefix}
    queue = Queue(name, where)
    ids = [(await queue.add(job["task"], job["data"], job["opts"])).id for job in json.loads(single)]
    await queue.addBulk(
        [{"name": job["task"], "data": job["data"], "opts": job["opts"]} for job in json.loads(bulk)]
    )
    print(json.dumps(ids))
    await queue.close()


asyncio.run(main(*sys.argv[1:]))
