// A client of Node's standard library that has 16 calls to make every second: caller.js HOST PORT SOCKETS (0: as many as it takes).
'use strict';
const http = require('node:http');
const [host, port, sockets] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const agent = new http.Agent({ keepAlive: true, maxSockets: sockets || Infinity });

setInterval(() => {
  for (let n = 0; n < 16; n++) {
    http.get({ host, port, agent, path: '/' }, (response) => response.resume()).on('error', () => {});
  }
}, 1000);
