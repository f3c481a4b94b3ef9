// A user that has three values and two cookies, and thinks until the end.
import http from 'k6/http';
import { check, sleep } from 'k6';

const BASE = __ENV.BASE;

export const options = {
  scenarios: {
    think: { executor: 'constant-vus', vus: Number(__ENV.USERS), duration: __ENV.TIME, gracefulStop: '0s' },
  },
};

export default function () {
  const login = http.post(`${BASE}/login`, JSON.stringify({ user: 'ann', password: 'secret' }));
  check(login, { 'login is 200': (r) => r.status === 200 });
  const token = login.json('access_token');
  const user = login.json('user.id');
  const item = login.json('items.0.id');
  sleep(0.5);
  const headers = { Authorization: `Bearer ${token}` };
  const page = http.get(`${BASE}/users/${user}/items/${item}`, { headers });
  check(page, { 'page is 200': (r) => r.status === 200 });
  sleep(600);
}

export function handleSummary(data) {
  return { stdout: JSON.stringify(data.metrics) };
}
