// What scripts import from https://jslib.k6.io/k6-utils/VERSION/index.js.
import { check, fail, sleep } from 'k6';
import exec from 'k6/execution';

const LETTERS = 'abcdefghijklmnopqrstuvwxyz';

export function randomIntBetween(min, max) { return Math.floor(Math.random() * (max - min + 1) + min); }
export function randomItem(items) { return items[Math.floor(Math.random() * items.length)]; }

export function randomString(length, charset) {
  const letters = charset === undefined ? LETTERS : charset;
  let text = '';
  for (let i = 0; i < length; i++) text += letters[Math.floor(Math.random() * letters.length)];
  return text;
}

export function uuidv4() {
  return 'xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx'.replace(/[xy]/g, (c) => {
    const n = Math.floor(Math.random() * 16);
    return (c === 'x' ? n : (n & 3) | 8).toString(16);
  });
}

export function findBetween(text, left, right, repeat) {
  const all = [];
  let at = 0;
  for (;;) {
    const from = text.indexOf(left, at);
    if (from < 0) break;
    const to = text.indexOf(right, from + left.length);
    if (to < 0) break;
    const found = text.slice(from + left.length, to);
    if (!repeat) return found;
    all.push(found);
    at = to + right.length;
  }
  return repeat ? all : null;
}

export function normalDistributionStages(maxVus, durationSeconds, numberOfStages = 10) {
  const mean = numberOfStages / 2;
  const deviation = numberOfStages / 6;
  const height = (x) => Math.exp(-((x - mean) ** 2) / (2 * deviation * deviation));
  const seconds = Math.ceil(durationSeconds / (numberOfStages + 1));
  const stages = [];
  for (let i = 0; i <= numberOfStages; i++) stages.push({ duration: `${seconds}s`, target: Math.round(maxVus * height(i)) });
  stages.push({ duration: `${seconds}s`, target: 0 });
  return stages;
}

export function describe(name, f) {
  try { f(); return true; } catch (error) { check(null, { [name]: false }); console.error(`${name}: ${error}`); return false; }
}

const UNITS = { d: 86400000, h: 3600000, m: 60000, s: 1000, ms: 1 };

export function parseDuration(text) {
  if (typeof text !== 'string' || !/^(\d+(\.\d+)?(ms|[dhms]))+$/.test(text)) throw new TypeError(`${JSON.stringify(text)} is no duration such as 1m30s`);
  return [...text.matchAll(/(\d+(?:\.\d+)?)(ms|[dhms])/g)].reduce((all, [, n, unit]) => all + Number(n) * UNITS[unit], 0);
}

function stagesNow() {
  const { scenarios, stages } = exec.test.options;
  const own = scenarios && scenarios[exec.scenario.name] ? scenarios[exec.scenario.name].stages : stages;
  if (!Array.isArray(own) || own.length === 0) throw new Error('only executors with stages have a current stage');
  return own;
}

export function getCurrentStageIndex() {
  const stages = stagesNow();
  let left = Date.now() - exec.scenario.startTime;
  const at = stages.findIndex((stage) => { left -= parseDuration(stage.duration); return left < 0; });
  return at < 0 ? stages.length - 1 : at;
}

export function tagWithCurrentStageIndex() { exec.vu.tags.stage = getCurrentStageIndex(); }

export function tagWithCurrentStageProfile() {
  const stages = stagesNow();
  const at = getCurrentStageIndex();
  const before = at > 0 ? stages[at - 1].target : 0;
  const target = stages[at].target;
  exec.vu.tags.stage_profile = target > before ? 'ramp-up' : target < before ? 'ramp-down' : 'steady';
}

export { check, fail, sleep };
