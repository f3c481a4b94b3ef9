// The journey of journey.toml, for k6 and `linerate k6 run`.
import http from 'k6/http';
import { check } from 'k6';

const BASE = __ENV.BASE;
const JSON_TYPE = { 'Content-Type': 'application/json' };

export default function () {
  const login = http.post(`${BASE}/login`, JSON.stringify({ user: 'ann', password: 'secret' }), {
    headers: JSON_TYPE,
  });
  check(login, { 'login is 200': (r) => r.status === 200 });
  const token = login.json('access_token');
  const headers = { Authorization: `Bearer ${token}` };

  const list = http.get(`${BASE}/items`, { headers });
  check(list, { 'list is 200': (r) => r.status === 200 });
  const id = list.json('items.0.id');

  const item = http.get(`${BASE}/items/${id}`, { headers });
  check(item, { 'item is 200': (r) => r.status === 200 });

  const order = http.post(`${BASE}/orders`, JSON.stringify({ item: id, count: 1 }), {
    headers: Object.assign({}, headers, JSON_TYPE),
  });
  check(order, { 'order is 200': (r) => r.status === 200 });
  const number = order.json('order.id');

  const state = http.get(`${BASE}/orders/${number}`, { headers });
  check(state, { 'state is 200': (r) => r.status === 200 });
}

export function handleSummary(data) {
  return { stdout: JSON.stringify(data.metrics) };
}
