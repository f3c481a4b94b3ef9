// A server of Node's standard library: server.js PORT MODE.
'use strict';
const cluster = require('node:cluster');
const fs = require('node:fs');
const http = require('node:http');
const https = require('node:https');
const [port, mode] = [Number(process.argv[2]), process.argv[3]];
const body = 'Hello, World!\n'.repeat(20);

// Three workers, to which connections are handed in turn (cluster's own way); all but the first are busy with something else.
const late = cluster.isWorker && cluster.worker.id > 1 ? 60 : 0;

const { BENCH_TLS_CERT: cert, BENCH_TLS_KEY: key } = process.env;
const tls = cert ? { cert: fs.readFileSync(cert), key: fs.readFileSync(key) } : {};

const server = (cert ? https : http).createServer({ ...tls, noDelay: mode !== 'split' }, (request, response) => {
  if (mode === 'blocking' && request.url === '/block') {
    // What a large JSON.parse or a synchronous hash does.
    const until = Date.now() + 120;
    while (Date.now() < until);
  }
  response.writeHead(200, { 'Content-Length': body.length });
  if (mode === 'split') {
    response.flushHeaders();
    setImmediate(() => response.end(body));
  } else if (late) {
    setTimeout(() => response.end(body), late);
  } else {
    response.end(body);
  }
});
if (mode === 'cluster' && cluster.isPrimary) {
  for (let n = 0; n < 3; n++) cluster.fork();
} else {
  server.listen(port, '0.0.0.0');
}
