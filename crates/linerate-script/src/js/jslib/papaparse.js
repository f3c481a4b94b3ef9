// What scripts import from https://jslib.k6.io/papaparse/VERSION/index.js.

const DELIMITERS = [',', '\t', '|', ';', '\x1e', '\x1f'];

function rowsOf(text, { delimiter, quote, comment, preview }) {
  const rows = [];
  const errors = [];
  const lineEnd = /\r\n|\n|\r/g;
  let row = [];
  let at = 0;
  const ended = () => { rows.push(row); row = []; return preview > 0 && rows.length >= preview; };
  while (text !== '' && at <= text.length) {
    if (comment && row.length === 0 && text.startsWith(comment, at)) {
      lineEnd.lastIndex = at;
      const end = lineEnd.exec(text);
      if (end === null) return { rows, errors };
      at = end.index + end[0].length;
      continue;
    }
    let field;
    if (text[at] === quote) {
      field = '';
      at += 1;
      for (;;) {
        const to = text.indexOf(quote, at);
        if (to < 0) {
          errors.push({ type: 'Quotes', code: 'MissingQuotes', message: 'Quoted field unterminated', row: rows.length, index: at });
          field += text.slice(at);
          at = text.length;
          break;
        }
        field += text.slice(at, to);
        at = to + 1;
        if (text[at] !== quote) break;
        field += quote;
        at += 1;
      }
    }
    lineEnd.lastIndex = at;
    const end = lineEnd.exec(text);
    const line = end === null ? text.length : end.index;
    const left = text.slice(at, line);
    const next = left.indexOf(delimiter);
    const rest = next < 0 ? left : left.slice(0, next);
    row.push(field === undefined ? rest : field + (rest.trim() === '' ? '' : rest));
    if (next >= 0) { at += next + delimiter.length; continue; }
    if (ended() || end === null) return { rows, errors };
    at = line + end[0].length;
  }
  return { rows, errors };
}

// Whole lines without quotes need no look at each field.
function plainRows(text, { delimiter, preview }) {
  const lines = text.split(/\r\n|\n|\r/);
  return { rows: (preview > 0 ? lines.slice(0, preview) : lines).map((line) => line.split(delimiter)), errors: [] };
}

// The delimiter that splits the first rows into the most fields, and as many in each; undefined: none does.
function guessed(text, rules, isSkipped) {
  let best;
  for (const delimiter of DELIMITERS) {
    const { rows } = rowsOf(text, { ...rules, delimiter, preview: 10 });
    const counts = rows.filter((row) => !isSkipped(row)).map((row) => row.length);
    const mean = counts.reduce((all, count) => all + count, 0) / counts.length;
    const delta = counts.slice(1).reduce((all, count, i) => all + Math.abs(count - counts[i]), 0);
    if (mean > 1.99 && (best === undefined || (delta <= best.delta && mean > best.mean))) best = { delimiter, mean, delta };
  }
  return best && best.delimiter;
}

function typed(text) {
  if (text === 'true' || text === 'TRUE') return true;
  if (text === 'false' || text === 'FALSE') return false;
  if (/^\s*-?(\d+\.?|\.\d+|\d+\.\d+)([eE][-+]?\d+)?\s*$/.test(text) && Math.abs(Number(text)) < 2 ** 53) return Number(text);
  return text === '' ? null : text;
}

const wanted = (option, column) => {
  if (typeof option === 'function') return !!option(column);
  return option !== null && typeof option === 'object' ? !!option[column] : !!option;
};

export function parse(text, config = {}) {
  if (typeof text !== 'string') throw new TypeError('papaparse.parse() takes a text here: read files with open()');
  if (config.worker || config.download) throw new Error('papaparse.parse(): worker and download are not supported by linerate');
  const isEmpty = config.skipEmptyLines === 'greedy'
    ? (row) => row.join('').trim() === '' : (row) => row.length === 1 && row[0] === '';
  const isSkipped = (row) => !!config.skipEmptyLines && isEmpty(row);
  const rules = {
    quote: config.quoteChar === undefined ? '"' : config.quoteChar,
    comment: config.comments === true ? '#' : config.comments || '',
    preview: config.preview > 0 ? config.preview + (config.header ? 1 : 0) : 0,
  };
  const asked = typeof config.delimiter === 'function' ? config.delimiter(text) : config.delimiter;
  const found = asked || guessed(text, rules, isSkipped);
  rules.delimiter = found || ',';
  let { rows, errors } = rules.comment || text === '' || text.includes(rules.quote) ? rowsOf(text, rules) : plainRows(text, rules);
  if (!found) errors.unshift({ type: 'Delimiter', code: 'UndetectableDelimiter', message: "Unable to auto-detect delimiting character; defaulted to ','" });
  rows = rows.filter((row) => !isSkipped(row));
  let fields;
  if (config.header && rows.length > 0) {
    fields = rows.shift().map((name, i) => (config.transformHeader ? config.transformHeader(name, i) : name));
  }
  const value = (text_, column) => {
    const own = config.transform ? config.transform(text_, column) : text_;
    return typeof own === 'string' && wanted(config.dynamicTyping, column) ? typed(own) : own;
  };
  const data = rows.map((row, at) => {
    if (!fields) return row.map(value);
    const object = {};
    row.forEach((text_, i) => {
      if (i < fields.length) object[fields[i]] = value(text_, fields[i]);
      else (object.__parsed_extra ??= []).push(text_);
    });
    if (row.length !== fields.length) {
      const code = row.length < fields.length ? 'TooFewFields' : 'TooManyFields';
      const words = code === 'TooFewFields' ? 'Too few fields' : 'Too many fields';
      errors.push({ type: 'FieldMismatch', code, message: `${words}: expected ${fields.length} fields but parsed ${row.length}`, row: at });
    }
    return object;
  });
  const meta = { delimiter: rules.delimiter, linebreak: (/\r\n|\n|\r/.exec(text) || ['\n'])[0], aborted: false, truncated: false, fields };
  const result = { data, errors, meta };
  if (config.step) data.forEach((one) => config.step({ data: one, errors: [], meta }));
  if (config.complete) config.complete(result);
  return result;
}

export function unparse(input, config = {}) {
  const { delimiter = ',', newline = '\r\n', header = true, quotes = false, quoteChar = '"' } = config;
  const items = typeof input === 'string' ? JSON.parse(input) : input;
  const given = Array.isArray(items) ? { data: items } : items;
  const first = given.data[0];
  const isObjects = first !== null && typeof first === 'object' && !Array.isArray(first);
  const names = config.columns || given.fields || (isObjects ? Object.keys(first) : undefined);
  const field = (value) => {
    if (value === null || value === undefined) return '';
    const text = value instanceof Date ? value.toISOString() : String(value);
    const needs = quotes === true || text.includes(delimiter) || text.includes(quoteChar) || /[\r\n]/.test(text) || /^\s|\s$/.test(text);
    return needs ? quoteChar + text.replaceAll(quoteChar, quoteChar + quoteChar) + quoteChar : text;
  };
  const line = (values) => values.map(field).join(delimiter);
  const rows = given.data.map((row) => line(Array.isArray(row) ? row : names.map((name) => row[name])));
  if (names && header) rows.unshift(line(names));
  return rows.join(newline);
}

export default { parse, unparse };
