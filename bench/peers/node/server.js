// http of Node as one would use it: `node server.js HOST PORT`; / at once, /delay/10 after 10 ms.
const http = require('http');

const [host, port] = process.argv.slice(2);
const answer = (response) => {
  response.setHeader('Content-Type', 'text/plain; charset=utf-8');
  response.end('Hello, World!\n');
};
http
  .createServer((request, response) => {
    if (request.url === '/delay/10') setTimeout(answer, 10, response);
    else answer(response);
  })
  .listen(Number(port), host);
