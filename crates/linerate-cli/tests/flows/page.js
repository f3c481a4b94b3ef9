// A page and its assets. The first assets of a page are answered once as many of them are asked for
// together as AT_ONCE says: a client that asks for them one after the other waits forever.
// Arguments: how many, then "h1", "h2", or a certificate and a key for both by ALPN.
const http = require('http');
const http2 = require('http2');
const fs = require('fs');

const [atOnce, kind, key] = [Number(process.argv[2]), process.argv[3], process.argv[4]];
const pages = new Map();

function answer(response, status, body, fields = {}) {
  response.writeHead(status, { 'Content-Type': 'application/json', ...fields });
  response.end(JSON.stringify(body));
}

function handle(request, response) {
  const url = new URL(request.url, 'http://page');
  const token = url.searchParams.get('token');
  if (url.pathname === '/page') {
    const made = `t${pages.size}`;
    pages.set(made, { waiting: [], open: 0, most: 0, sockets: new Set(), released: false });
    return answer(response, 200, { token: made }, { 'Set-Cookie': `page=${made}` });
  }
  const page = pages.get(token);
  if (!page || request.headers.cookie !== `page=${token}`) return answer(response, 403, { token });
  page.sockets.add(request.stream ? request.stream.session : request.socket);
  if (url.pathname === '/report') {
    const is = { connections: page.sockets.size, most: page.most, v: url.searchParams.get('v') };
    return answer(response, 200, is);
  }
  if (url.pathname === '/moved') {
    return answer(response, 302, {}, { Location: `/asset?token=${token}` });
  }
  page.open += 1;
  page.most = Math.max(page.most, page.open);
  page.waiting.push(() => { page.open -= 1; answer(response, 200, { v: `v${token}` }); });
  page.released = page.released || page.waiting.length >= atOnce;
  if (page.released) setTimeout(() => page.waiting.splice(0).forEach((say) => say()), 2);
}

const server = kind === 'h1' ? http.createServer(handle)
  : kind === 'h2' ? http2.createServer(handle)
    : http2.createSecureServer({ cert: fs.readFileSync(kind), key: fs.readFileSync(key), allowHTTP1: true }, handle);
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
