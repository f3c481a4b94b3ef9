// Echoes the body of each request.
const [address, port] = process.argv.slice(2);
require('http').createServer((request, response) => {
  const pieces = [];
  request.on('data', (piece) => pieces.push(piece));
  request.on('end', () => response.end(Buffer.concat(pieces)));
}).listen(Number(port), address);
