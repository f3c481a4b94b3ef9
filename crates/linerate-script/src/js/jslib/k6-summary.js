// What scripts import from https://jslib.k6.io/k6-summary/VERSION/index.js.
const native = globalThis.__linerate;

export function textSummary(data, options) {
  const { indent = '', enableColors = false } = options || {};
  return native.textSummary(JSON.stringify(data), String(indent), !!enableColors);
}

function escaped(text) {
  return String(text).replace(/[<>&'"]/g, (c) => ({ '<': '&lt;', '>': '&gt;', '&': '&amp;', '\'': '&apos;', '"': '&quot;' })[c]);
}

export function jUnit(data, options) {
  const name = options && options.name ? options.name : 'k6 thresholds';
  const cases = [];
  let failures = 0;
  for (const metric of Object.keys(data.metrics)) {
    const thresholds = data.metrics[metric].thresholds || {};
    for (const threshold of Object.keys(thresholds)) {
      const label = escaped(`${metric} - ${threshold}`);
      if (thresholds[threshold].ok) { cases.push(`<testcase name="${label}" />`); continue; }
      failures += 1;
      cases.push(`<testcase name="${label}"><failure message="failed" /></testcase>`);
    }
  }
  return `<?xml version="1.0"?>\n<testsuites tests="${cases.length}" failures="${failures}">\n` +
    `<testsuite name="${escaped(name)}" tests="${cases.length}" failures="${failures}">${cases.join('\n')}\n</testsuite >\n</testsuites >`;
}

export default { textSummary, jUnit };
