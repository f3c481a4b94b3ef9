// An API with JSON web tokens: POST /token gives one, and /me needs it.
const crypto = require('crypto');
const http = require('http');

const secret = crypto.randomBytes(16);
const base64 = (text) => Buffer.from(text).toString('base64url');
const mac = (text) => crypto.createHmac('sha256', secret).update(text).digest('base64url');

function claims(token) {
  const [head, body, signature] = token.split('.');
  return signature === mac(`${head}.${body}`) ? JSON.parse(Buffer.from(body, 'base64url')) : null;
}

const server = http.createServer((request, response) => {
  let text = '';
  request.on('data', (piece) => { text += piece; });
  request.on('end', () => {
    const reply = (status, body) => {
      response.writeHead(status, { 'Content-Type': 'application/json' });
      response.end(JSON.stringify(body));
    };
    if (request.url === '/token' && request.method === 'POST') {
      const token = `${base64('{"alg":"HS256"}')}.${base64(JSON.stringify({ sub: JSON.parse(text).user }))}`;
      return reply(200, { expires: 60, data: { access: [null, `${token}.${mac(token)}`] } });
    }
    const found = claims((request.headers.authorization || '').replace('Bearer ', ''));
    if (!found) return reply(401, { error: 'no valid token' });
    return reply(request.url === `/me/${found.sub}` ? 200 : 403, { user: found.sub });
  });
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
