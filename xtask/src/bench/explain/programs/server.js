// A server of Node's standard library: server.js PORT MODE.
'use strict';
const http = require('node:http');
const [port, mode] = [Number(process.argv[2]), process.argv[3]];
const body = 'Hello, World!\n'.repeat(20);

const server = http.createServer({ noDelay: mode !== 'split' }, (request, response) => {
  if (mode === 'blocking' && request.url === '/block') {
    // What a large JSON.parse or a synchronous hash does.
    const until = Date.now() + 120;
    while (Date.now() < until);
  }
  response.writeHead(200, { 'Content-Length': body.length });
  if (mode === 'split') {
    response.flushHeaders();
    setImmediate(() => response.end(body));
  } else {
    response.end(body);
  }
});
server.listen(port, '0.0.0.0');
