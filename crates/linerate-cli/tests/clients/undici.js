// URL (NODE_EXTRA_CA_CERTS names the authority): fetch of undici, a body there and back.
async function run() {
  const body = 'x'.repeat(3000000);
  for (let i = 0; i < 3; i++) {
    const response = await fetch(process.argv[2], { method: 'POST', body });
    if (await response.text() !== body) throw new Error('another body');
  }
  console.log('good');
}
run().catch(error => { console.error(error); process.exit(1); });
