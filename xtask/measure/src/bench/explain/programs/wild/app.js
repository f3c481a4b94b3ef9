// express or fastify: app.js PORT KIND; what it does says BENCH_MODE, as in app.py.
'use strict';
const [port, kind, mode] = [Number(process.argv[2]), process.argv[3], process.env.BENCH_MODE];
const body = 'Hello, World!\n'.repeat(20);
let calls = 0;
const pauses = {
  think: () => 100,
  varied: () => -30 * Math.log(1 - Math.random()),
  stalls: () => Math.max(250 - (Date.now() % 1000), 0),
  cold: () => (calls++ === 0 ? 1500 : 0),
};
const pause = pauses[mode] || (() => 0);
const later = () => new Promise((resolve) => { const ms = pause(); ms ? setTimeout(resolve, ms) : resolve(); });
if (kind === 'express') {
  const app = require('express')();
  app.get('/', async (request, response) => { await later(); response.type('text').send(body); });
  app.listen(port, '0.0.0.0');
} else {
  const app = require('fastify')();
  app.get('/', async () => { await later(); return body; });
  app.listen({ port, host: '0.0.0.0' });
}
