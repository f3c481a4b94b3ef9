// CAFILE PORT VERSION: a body there and back, then a connection that resumes the session.
const tls = require('tls'), https = require('https'), fs = require('fs');
const [cafile, port, version] = process.argv.slice(2);
const ca = fs.readFileSync(cafile), limit = 'TLSv' + version, body = Buffer.alloc(3000000, 'x');
function ask(session) {
  return new Promise((done, fail) => {
    let last, socket;
    const request = https.request({ host: '127.0.0.1', port, servername: 'localhost', ca, session, agent: false,
      method: 'POST', path: '/echo', minVersion: limit, maxVersion: limit }, response => {
      const got = [];
      response.on('data', piece => got.push(piece));
      response.on('end', () => {
        if (!Buffer.concat(got).equals(body)) return fail(new Error('another body'));
        done([last || socket.getSession(), socket.isSessionReused(), socket.getProtocol()]);
      });
    });
    request.on('socket', s => { socket = s; s.on('session', ticket => { last = ticket; }); });
    request.on('error', fail);
    request.end(body);
  });
}
async function run() {
  const [session] = await ask(undefined);
  const [, reused, agreed] = await ask(session);
  console.log(agreed, reused ? 'resumed' : 'full');
}
run().catch(error => { console.error(error); process.exit(1); });
