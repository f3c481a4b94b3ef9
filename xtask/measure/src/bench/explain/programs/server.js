// A server of Node's standard library: server.js PORT MODE.
'use strict';
const cluster = require('node:cluster');
const fs = require('node:fs');
const http = require('node:http');
const http2 = require('node:http2');
const https = require('node:https');
const [port, mode] = [Number(process.argv[2]), process.argv[3]];
const body = 'Hello, World!\n'.repeat(20);

// Three workers, to which connections are handed in turn (cluster's own way); all but the first are busy with something else.
const late = cluster.isWorker && cluster.worker.id > 1 ? 60 : 0;

const { BENCH_TLS_CERT: cert, BENCH_TLS_KEY: key } = process.env;
const tls = cert ? { cert: fs.readFileSync(cert), key: fs.readFileSync(key) } : {};

// HTTP/2: two calls at once, or as many as Node admits; `h2-think` takes its time.
const settings = mode === 'h2-streams' ? { maxConcurrentStreams: 2 } : {};
const answer = (request, response) => {
  response.writeHead(200, { 'Content-Length': body.length });
  setTimeout(() => response.end(body), mode === 'h2-think' ? 40 : 0);
};
const streams = () =>
  cert ? http2.createSecureServer({ ...tls, settings }, answer) : http2.createServer({ settings }, answer);

const server = mode.startsWith('h2-') ? streams() : (cert ? https : http).createServer({ ...tls, noDelay: mode !== 'split' }, (request, response) => {
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
